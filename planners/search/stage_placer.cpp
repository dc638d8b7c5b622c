#include "planners/search/stage_placer.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "messages/base/folds.hpp"
#include "messages/base/time.hpp"
#include "messages/domain/tensor_split.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cost/run_cost.hpp"
#include "planners/cost/stage_time.hpp"
#include "planners/model/engine_memory.hpp"
#include "planners/model/job_memory.hpp"
#include "planners/plans/fits.hpp"

// Places sets of stages (Espresso, section III.C; docs/planners/plan_search.md). A set has numbers
// of stages by type, but not the nodes that they are on; layout.cpp fills nodes in a fixed way once
// order and cut are known. So the search for these sees the links that any placement could have at
// best (routes_of), its result is a bound, and the plan is scored by evaluate() on its real nodes.
// Where every stage has a node for itself and the nodes of a type are equal (`alike`, a cloud's
// instances), all placements have the same links and the bound is exact. Costs that sets share, a
// table of ranges per micro-batch size and a bound per depth, are made once.

namespace troupe::planners {

namespace {

/// The nodes of a type that can hold a stage, those with the fastest network first.
std::vector<node_index> nodes_for(const cluster& c, const idle_index& idle, gpu_index g,
                                  std::uint32_t tensor) {
  std::vector<node_index> nodes;
  for (node_index n = 0; n < c.nodes.size(); ++n)
    if (c.nodes[n].gpu == g && idle.idle(n) >= tensor) nodes.push_back(n);
  std::ranges::stable_sort(nodes, std::greater{},
                           [&](auto n) { return c.nodes[n].inter.max_gbps(); });
  return nodes;
}

/// Whether each of the nodes holds exactly one stage, with the same links and speed.
bool same_nodes(const cluster& c, const idle_index& idle, const job_spec& job,
                const std::vector<node_index>& nodes, std::uint32_t tensor) {
  return std::ranges::all_of(nodes, [&](auto n) {
    const auto& a = c.nodes[n];
    const auto& b = c.nodes[nodes.front()];
    return idle.idle(n) < 2 * tensor && a.inter == b.inter && a.intra == b.intra &&
           a.datacenter == b.datacenter && emulated_speed(c, n, job) == 1;
  });
}

}  // namespace

stage_placer::stage_placer(const cluster& c, const idle_index& idle, const job_spec& job,
                           fidelity f)
    : c_{c}, idle_{idle}, job_{job}, fidelity_{f} {
  if (!job_.train) job_.train.emplace();
  job_.train->schedule = "megatron";
  job_.train->costs.clear();  // of another cut
  min_bytes_ = min_bytes_per_parameter(job) * shape_of(job.model).parameters *
               (1 + c.settings.memory_headroom);
  const auto largest = max_of(c.nodes, 0, &node::gpus);
  for (std::uint32_t t = 1; t <= largest; t *= 2) {
    if (!splits_into(job.model, t)) break;
    add_divisions(t);
  }
}

// A division for every number of pipelines that divides the batch and leaves some type with enough
// groups of `tensor` GPUs for a stage of all of them.
void stage_placer::add_divisions(std::uint32_t tensor) {
  auto r = routes_of(tensor);
  if (r.types.empty()) return;
  std::vector<std::uint32_t> groups;
  std::vector<double> prices;  // where the type costs the least
  for (const auto& t : r.types) {
    std::uint32_t n = 0;
    prices.push_back(never);
    for (const auto node : nodes_for(c_, idle_, t.gpu, tensor)) {
      n += idle_.idle(node) / tensor;
      prices.back() = std::min(prices.back(), price_per_hour(c_, node));
    }
    const auto quota = c_.gpus[t.gpu].quota;
    groups.push_back(quota > 0 ? std::min(n, quota / tensor) : n);
  }
  const auto max = std::min(job_.global_batch, std::ranges::max(groups));
  for (std::uint32_t d = 1; d <= max; ++d) {
    if (job_.global_batch % d != 0) continue;
    division one{d, tensor, {}};
    for (std::size_t t = 0; t < r.types.size(); ++t) {
      const auto& gpu = c_.gpus[r.types[t].gpu];
      one.types.push_back(
          {r.types[t].gpu, groups[t] / d, gpu.memory_bytes(), d * tensor * prices[t]});
    }
    divisions_.push_back(std::move(one));
  }
  routes_.emplace(tensor, std::move(r));
}

// The fastest link of each pair of types: between their best connected nodes, or inside a node that
// holds two stages. Without latency unless all nodes are alike, as some pair may be nearer.
stage_placer::routes stage_placer::routes_of(std::uint32_t tensor) const {
  routes r;
  std::vector<std::vector<node_index>> nodes;
  for (gpu_index g = 0; g < c_.gpus.size(); ++g) {
    auto all = nodes_for(c_, idle_, g, tensor);
    if (all.empty()) continue;
    r.types.push_back({g, c_.nodes[all.front()].intra});
    r.alike = r.alike && same_nodes(c_, idle_, job_, all, tensor);
    if (!nodes.empty())
      r.alike =
          r.alike && c_.nodes[nodes.front().front()].datacenter == c_.nodes[all.front()].datacenter;
    nodes.push_back(std::move(all));
  }
  set_nodes(r, nodes, tensor);
  for (std::size_t a = 0; a < nodes.size(); ++a)
    for (std::size_t b = 0; b < nodes.size(); ++b) {
      const auto& from = nodes[a];
      const auto& to = nodes[b];
      auto w = link_cost_between(c_, from.front(),
                                 a == b ? from[from.size() > 1 ? 1 : 0] : to.front(), tensor);
      std::uint32_t together = 1;
      // Another pair may be faster at some size, but none is at the fastest one.
      if (!r.alike) w = {w.s_per_byte};
      if (a == b) r.between_nodes.push_back(w);
      for (const auto n : from) {
        if (r.alike || a != b || idle_.idle(n) < 2 * tensor) continue;
        const auto inside = link_cost_between(c_, n, n);
        w.s_per_byte = std::min(w.s_per_byte, inside.s_per_byte);
        together = std::max(together, idle_.idle(n) / tensor);
      }
      if (a == b) r.stages_of_node.push_back(together);
      r.links.push_back(w);
    }
  return r;
}

// Notes the node of every stage, if the order in which layout.cpp fills nodes does not depend on
// the set: inside one datacenter.
void stage_placer::set_nodes(routes& r, const std::vector<std::vector<node_index>>& nodes,
                             std::uint32_t tensor) const {
  if (nodes.empty() || r.alike) return;
  const auto datacenter = c_.nodes[nodes.front().front()].datacenter;
  for (auto of_type : nodes) {
    std::ranges::sort(of_type);
    auto& stages = r.nodes.emplace_back();
    for (const auto n : of_type) {
      if (c_.nodes[n].datacenter != datacenter) return r.nodes.clear();
      stages.insert(stages.end(), idle_.idle(n) / tensor, n);
    }
  }
}

/// By stage of a type, if each pipeline has `stages` of them: whether it leaves its node for the
/// next stage of the type, in any pipeline. Empty: not known.
std::vector<bool> stage_placer::hops_between_nodes(const routes& r, std::size_t type,
                                                   std::uint32_t pipelines, std::uint32_t stages) {
  if (r.nodes.empty()) return {};
  const auto& at = r.nodes[type];
  std::vector<bool> leave(stages);
  for (std::size_t i = 0; i + 1 < std::size_t{stages} * pipelines; ++i)
    if (at[i] != at[i + 1]) leave[i % stages] = true;
  return leave;
}

/// Lower bound of the chunks of gradients that a stage sends to its peers over its busiest link, if
/// each pipeline has `stages` stages of the type. A pipeline's stages of one type are neighbours
/// (layout.cpp), so peers share a node only if it holds all stages between them; of the possible
/// numbers of peers outside of the node, the best one counts.
cut_problem::chunks stage_placer::chunks_to_peers(const routes& r, std::size_t type,
                                                  std::uint32_t pipelines, std::uint32_t stages) {
  const auto peers = (r.stages_of_node[type] - 1) / std::max(1U, stages) + 1;
  const auto& inside = r.links[type * (r.types.size() + 1)];
  cut_problem::chunks min{1, never};
  for (auto outside = pipelines - std::min(peers, pipelines); outside < pipelines; ++outside) {
    cut_problem::chunks one{1.0 * outside, r.between_nodes[type].s_per_byte};
    const cut_problem::chunks others{pipelines - 1.0 - outside, inside.s_per_byte};
    if (others.total_s(1) > one.total_s(1)) one = others;
    if (one.total_s(1) < min.total_s(1)) min = one;
  }
  return min;
}

const stage_table& stage_placer::table_of(std::uint32_t tensor, std::uint32_t rows,
                                          std::uint32_t pipelines) {
  // A program may share its states among its pipelines (ZeRO).
  const auto summing = facts_of(job_).on_engine ? std::min(pipelines, 2U)
                       : job_.memory            ? pipelines
                                                : 1;
  auto& table = tables_[{tensor, rows, summing}];
  if (!table) {
    table =
        std::make_unique<stage_table>(c_, job_, tensor, rows, routes_.at(tensor).types, summing);
    const std::uint64_t firsts = table->homogeneous() ? 4 : table->size();
    units_ += 50 * firsts * table->size() * table->types();
  }
  return *table;
}

// The bounds of one division and depth. Sends take the best link of any pair of types and the least
// activation, except max_send_s, which hides tails and so takes the slowest.
stage_placer::shape& stage_placer::shape_for(std::size_t division, std::uint32_t stages) {
  const auto [at, fresh] = shapes_.try_emplace({division, stages});
  auto& s = at->second;
  if (!fresh) return s;
  const auto& d = divisions_[division];
  s.batch = split_batch(job_, stages, d.pipelines);
  if (s.batch.microbatches == 0) return s;
  s.table = &table_of(d.tensor, s.batch.rows, d.pipelines);
  const auto& r = routes_.at(d.tensor);
  iteration_bound::transfers x;
  x.min_send_s = x.min_between_nodes_s = x.sums_s = x.card_s = never;
  x.stages_of_node = std::ranges::max(r.stages_of_node);
  for (std::size_t i = 0; i < r.links.size(); ++i) {
    const auto& w = r.links[i];
    const auto min_s = [&](const link_cost& by) {
      return by.fastest_s(s.table->min_activation_bytes()) + by.latency_s;
    };
    const bool one_type = i % (d.types.size() + 1) == 0;
    x.min_send_s = std::min(x.min_send_s, min_s(w));
    x.min_between_nodes_s =
        std::min(x.min_between_nodes_s, min_s(one_type ? r.between_nodes[i / d.types.size()] : w));
    x.max_send_s = std::max(x.max_send_s, w.max_s(s.table->max_activation_bytes()) + w.latency_s);
    x.card_s = std::min(x.card_s, w.fastest_s(s.table->min_activation_bytes()));
  }
  if (!r.alike) x.max_send_s = never;
  x.trips = r.alike && fidelity_ == fidelity::lower_bound;
  if (!x.trips) x.card_s = 0;
  for (std::size_t t = 0; t < d.types.size(); ++t) {
    // Gradient bytes are rounded stage by stage, so the sum over stages may be `stages` bytes less.
    const double bytes = s.table->last(t, 0).gradient_bytes - stages;
    const auto chunks = chunks_to_peers(r, t, d.pipelines, 1);
    x.sums_s = std::min(x.sums_s, 2 * chunks.total_s(bytes / d.pipelines));
  }
  s.bound.emplace(*s.table, s.batch.microbatches, stages, x);
  if (s.table->homogeneous() && d.types.size() <= 64) {
    s.capacity.emplace(*s.table, mapped(d.types, &stage_type::bytes), held_by(s, stages));
    units_ += d.types.size() * (stages + s.table->size());
  }
  return s;
}

std::vector<std::uint32_t> stage_placer::held_by(const shape& s, std::uint32_t stages) const {
  std::vector<std::uint32_t> held;
  for (std::uint32_t behind = 0; behind < stages; ++behind)
    held.push_back(in_flight(job_, s.batch, behind));
  return held;
}

const iteration_bound* stage_placer::bound(std::size_t division, std::uint32_t stages) {
  auto& s = shape_for(division, stages);
  return s.bound ? &*s.bound : nullptr;
}

// Without a bound by positions (operators, more than 64 types) only the parameters' states count:
// the open stages take the types with the largest memory.
bool stage_placer::may_hold(std::size_t division, const stage_counts& counts, std::size_t decided,
                            std::uint32_t missing) {
  const auto& d = divisions_[division];
  const auto stages = std::accumulate(counts.begin(), counts.end(), missing);
  std::vector<std::uint32_t> open(d.types.size(), 0);
  for (auto t = decided; t < open.size(); ++t) open[t] = d.types[t].stages;
  auto& s = shape_for(division, stages);
  if (s.capacity) return s.capacity->may_hold(counts, open, missing);
  auto largest = indices(open.size());
  std::ranges::sort(largest, std::greater{}, [&](auto t) { return d.types[t].bytes; });
  double bytes = 0;
  for (const auto t : largest) {
    const auto n = std::min(missing, open[t]);
    bytes += (counts[t] + n) * d.types[t].bytes;
    missing -= n;
  }
  return bytes * d.tensor >= min_bytes_;
}

std::optional<cut_problem> stage_placer::problem_of(std::size_t division,
                                                    const stage_counts& counts) {
  const auto& d = divisions_[division];
  cut_problem p;
  p.counts = counts;
  const auto stages = p.stages();
  auto& s = shape_for(division, stages);
  if (!s.bound) return {};
  const auto& r = routes_.at(d.tensor);
  p.table = s.table;
  p.bound = &*s.bound;
  p.bytes = mapped(d.types, &stage_type::bytes);
  p.microbatches = s.batch.microbatches;
  p.pipelines = d.pipelines;
  p.held = held_by(s, stages);
  p.links = r.links;
  p.stages_of_node = r.stages_of_node;
  p.between_nodes = r.between_nodes;
  for (std::size_t t = 0; t < counts.size(); ++t)
    p.leaves_node.push_back(hops_between_nodes(r, t, d.pipelines, counts[t]));
  for (std::size_t t = 0; t < counts.size(); ++t)
    p.chunks_to_peers.push_back(chunks_to_peers(r, t, d.pipelines, counts[t]));
  p.own_links = r.alike;
  p.lower_bound = fidelity_of(division) == fidelity::lower_bound;
  p.tied = job_.model.tied_head && stages > 1;
  p.agrees = agrees_on_updates(job_) && stages * d.pipelines > 1;
  return p;
}

fidelity stage_placer::fidelity_of(std::size_t division) const {
  return routes_.at(divisions_[division].tensor).alike ? fidelity_ : fidelity::closed;
}

// Where links are shared, the cut with the smallest bound need not have the shortest plan: the
// others are tried, too, as long as their bounds are smaller than the best plan.
set_plan stage_placer::place(std::size_t division, const stage_counts& counts, double limit_s,
                             const std::vector<std::size_t>& order, std::optional<fidelity> f,
                             const cut_effort& effort) {
  auto p = problem_of(division, counts);
  if (!p) return {};
  p->order = order;
  if (f) p->lower_bound = *f == fidelity::lower_bound;
  const auto cut = cut_for(*p, limit_s, units_, memory_, effort);
  set_plan out;
  if (!cut.stages.empty()) out = plan_of(division, cut.stages);
  for (const auto& other : cut.others) {
    if (other.bound_s >= out.iteration_s) break;
    auto one = plan_of(division, other.stages);
    if (one.iteration_s < out.iteration_s) out = std::move(one);
  }
  if (!routes_.at(divisions_[division].tensor).alike || cut.bound_s < cut.iteration_s)
    out.bound_s = std::min(cut.bound_s, out.iteration_s);
  return out;
}

std::optional<std::vector<stage_cut::alternative>> stage_placer::cuts_within(
    std::size_t division, const stage_counts& counts, double limit_s, std::uint64_t max_steps) {
  auto p = problem_of(division, counts);
  if (!p) return std::vector<stage_cut::alternative>{};
  return troupe::planners::cuts_within(*p, limit_s, units_, memory_, max_steps);
}

set_plan stage_placer::plan_of(std::size_t division, const std::vector<cut_stage>& stages) {
  const auto& d = divisions_[division];
  std::vector<stage_request> wanted;
  for (const auto& one : stages) wanted.push_back({d.types[one.type].gpu, one.pieces, d.tensor});
  auto job = job_;
  job.pipeline.tensor_parallel = d.tensor;
  units_ += 20 * std::uint64_t{stages.size()} * d.pipelines + c_.nodes.size();
  set_plan out;
  auto placed = plan_of_stages(c_, idle_, job, wanted, d.pipelines);
  if (!placed || !fits(c_, idle_, placed->how, placed->where)) return out;
  if (const auto f = fidelity_of(division); f != fidelity::closed) {
    const auto e = evaluate(c_, job, placed->how, placed->where, f);
    if (!e) return out;
    placed->how.samples_per_s = e->samples_per_s;
  }
  out.bound_s = out.iteration_s = job_.global_batch / placed->how.samples_per_s;
  out.plan = std::move(*placed);
  return out;
}

}  // namespace troupe::planners
