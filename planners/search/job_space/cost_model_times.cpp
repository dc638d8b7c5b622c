#include "planners/search/job_space/cost_model_times.hpp"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "messages/base/refuse.hpp"
#include "messages/domain/tensor_split.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cost/model_partition.hpp"
#include "planners/devices/kernel_time.hpp"
#include "planners/model/job_memory.hpp"
#include "planners/search/job_space/measured_rows.hpp"
#include "planners/search/job_space/one_pipeline.hpp"

namespace troupe::planners {

constexpr double cannot_be = std::numeric_limits<double>::infinity();

std::string why_one_datacenter(const job_spec& job) {
  if (!job.train || !job.train->program || !sums_on_devices(*job.train, job.train->device))
    return {};
  return "all pipelines are in one datacenter, since `gradients: torch` cannot sum across "
         "datacenters; "
         "`gradients: host` sums over several";
}

expected<std::unique_ptr<cost_model_times>> cost_model_times::of(const cluster& c,
                                                                 const idle_index& idle,
                                                                 const job_spec& job,
                                                                 const plan_space& space,
                                                                 const plan_timing& timing) {
  const auto work = facts_of(job);
  if (!work.has_model)
    return refuse(reason::kind::invalid,
                  "a search for pipelines is for work with a model; '{}' is a {}", job.name,
                  work.name);
  if (job.pipeline.virtual_stages > 1 || context_parallel_of(job.pipeline) > 1)
    return refuse(
        reason::kind::invalid,
        "a search for pipelines has one part of the model in a stage and whole sequences; "
        "'{}' has virtual_stages or context_parallel",
        job.name);
  std::unique_ptr<cost_model_times> out{new cost_model_times{c, idle, job, space}};
  out->timing_ = timing;
  if (out->problem_.classes.empty() || out->problem_.rows.empty())
    return refuse(reason::kind::infeasible, "no idle GPU can have a stage of '{}'", job.model.name);
  return out;
}

cost_model_times::cost_model_times(const cluster& c, const idle_index& idle, const job_spec& job,
                                   const plan_space& space)
    : c_{c}, idle_{idle}, job_{job}, kinds_{c, idle, job} {
  const auto work = facts_of(job);
  if (!job_.train) job_.train.emplace();
  // A training's stages keep what its own schedule has in flight, in groups of one GPU.
  if (!work.has_stages)
    job_.train->schedule = "megatron";
  else
    job_.pipeline.tensor_parallel = std::max(1U, job_.pipeline.tensor_parallel);
  job_.train->costs.clear();  // of another cut
  problem_.space = space;
  if (!why_one_datacenter(job).empty())
    problem_.space.several_datacenters = problem_.space.mixed_pipelines = false;
  problem_.samples = job.global_batch;
  const auto pieces = pieces_of(job.model);
  const bool halves = job.model.operators.empty();
  if (space.name == "sailor" && halves && pieces % 2 == 0) unit_ = 2;
  while (pieces / unit_ > (space.fine_cut ? 160 : 64)) unit_ *= 2;
  problem_.pieces = (pieces + unit_ - 1) / unit_;
  if (halves && space.fine_cut) ++problem_.pieces;  // the head
  if (unit_ == 1 && halves && problem_.pieces > (space.fine_cut ? 65 : 24)) problem_.grain = 2;
  problem_.goal = job.objective == "fastest"    ? space_goal::fastest
                  : job.objective == "cheapest" ? space_goal::cheapest
                                                : space_goal::efficient;
  const auto iterations = static_cast<double>(job.iterations);
  for (const auto& limit : {job.limits.slo_s, job.limits.deadline_s})
    if (limit) problem_.max_s = std::min(problem_.max_s.value_or(cannot_be), *limit / iterations);
  if (job.limits.budget) problem_.max_dollars = *job.limits.budget / iterations;
  if (job.limits.max_gpus) problem_.max_gpus = *job.limits.max_gpus;
  sends_in_steps_ = divides_words(job_) && !job_.pipeline.overlap.value_or(false);
  add_pools();
  add_classes();
  add_rows();
  links_.emplace(c_, idle_, kinds_.of_nodes(), kinds_.size(), job_.pipeline.connections);
  for (std::uint32_t k = 0; k < problem_.classes.size(); ++k) {
    for (const bool kinds : {false, true}) {
      auto& on_node = peers_[kinds ? 1 : 0];
      on_node.here.push_back(peers_here(k, kinds));
      on_node.max = std::max(on_node.max, on_node.here.back());
    }
  }
  set_max_stages();  // needs the links
}

void cost_model_times::add_pools() {
  problem_.datacenters =
      static_cast<std::uint32_t>(std::max<std::size_t>(1, c_.datacenters.size()));
  idle_in_.assign(problem_.datacenters, idle_);
  problem_.kinds.assign(kinds_.size(), {cannot_be});
  // In the order of GPU types.
  std::map<std::tuple<std::uint32_t, gpu_index, std::uint32_t>, std::vector<std::uint32_t>> free;
  for (node_index n = 0; n < c_.nodes.size(); ++n) {
    const auto& node = c_.nodes[n];
    for (std::uint32_t d = 0; d < problem_.datacenters; ++d)
      if (d != node.datacenter) idle_in_[d].set_idle(n, 0);
    if (idle_.idle(n) == 0) continue;
    const auto kind = kinds_.of_nodes()[n];
    free[{node.datacenter, node.gpu, kind}].push_back(idle_.idle(n));
    auto& price = problem_.kinds[kind].price_per_hour;
    price = std::min(price, price_per_hour(c_, n));
  }
  for (auto& [at, nodes] : free)
    problem_.pools.push_back({std::get<2>(at), std::get<0>(at), std::move(nodes)});
}

void cost_model_times::add_classes() {
  for (std::uint32_t k = 0; k < kinds_.size(); ++k) {
    std::uint32_t largest = 0;
    for (const auto& p : problem_.pools)
      if (p.kind == k) largest = std::max(largest, std::ranges::max(p.free));
    const auto asked = job_.pipeline.tensor_parallel;
    for (std::uint32_t t = 1; t <= largest && splits_into(job_.model, t); t *= 2)
      if (asked == 0 || asked == t)
        problem_.classes.push_back({k, t}), largest_tensor_ = std::max(largest_tensor_, t);
  }
}

/// Divisors of the batch, those first that a profile was measured with; none beyond twice the
/// largest of these. At most twelve.
void cost_model_times::add_rows() {
  auto& rows = problem_.rows;
  const auto fixed =
      job_.pipeline.rows > 0 ? job_.pipeline.rows : (job_.memory ? job_.memory->micro_batch : 0);
  if (fixed > 0) {
    if (problem_.samples % fixed == 0) rows.push_back(fixed);
    return;
  }
  const auto measured = measured_rows(c_, job_, kinds_.types());
  const auto largest = measured.empty() ? problem_.samples : 2 * measured.back();
  const auto add = [&](std::uint32_t r) {
    if (std::ranges::count(rows, r) == 0 && r <= largest && problem_.samples % r == 0 &&
        rows.size() < 12)
      rows.push_back(r);
  };
  for (const auto r : measured) add(r);
  for (std::uint32_t r = 1; r <= problem_.samples; ++r) add(r);
}

/// Twice as many as the largest GPUs need, by the smallest micro-batch, if that is more than usual.
void cost_model_times::set_max_stages() {
  if (problem_.rows.empty()) return;
  const auto rows = std::ranges::min(problem_.rows);
  auto needed = problem_.pieces;
  for (std::uint32_t k = 0; k < problem_.classes.size(); ++k) {
    const double memory = c_.gpus[kinds_[problem_.classes[k].kind].gpu].memory_bytes();
    for (std::uint32_t stages = 1; stages < needed; ++stages) {
      const auto count = (problem_.pieces + stages - 1) / stages;
      const auto& first = costs(facts(rows).classes[k], 0, count, stages - 1);
      if (first.bytes + stages * first.bytes_each < memory) needed = stages;
    }
  }
  problem_.max_stages = std::max({problem_.max_stages, 2 * needed, job_.pipeline.stages});
  // A head by itself is no more a stage than the model has pieces.
  problem_.max_stages = std::min(problem_.max_stages, (pieces_of(job_.model) + unit_ - 1) / unit_);
}

std::uint32_t cost_model_times::piece(std::uint32_t unit) const {
  return std::min(unit * unit_, pieces_of(job_.model));
}

/// Facts of all classes for one number of rows, made when they are first asked for.
const cost_model_times::rows_facts& cost_model_times::facts(std::uint32_t rows) const {
  if (last_facts_ && last_facts_->rows == rows) return *last_facts_;
  auto& known = facts_[rows];
  if (!known) known = std::make_unique<rows_facts>(facts_of_rows(rows));
  last_facts_ = known.get();
  return *last_facts_;
}

cost_model_times::rows_facts cost_model_times::facts_of_rows(std::uint32_t rows) const {
  std::vector<stage_table::gpus_of_stage> types;
  for (std::size_t k = 0; k < kinds_.size(); ++k) {
    const auto at = std::ranges::find(c_.nodes, kinds_[k].gpu, &node::gpu);
    types.push_back({kinds_[k].gpu, at->intra, kinds_[k].speed});
  }
  // The more pipelines share a program's states, the less each needs.
  const auto pipelines = job_.memory && job_.memory->zero > 0 ? problem_.microbatches(rows) : 1;
  rows_facts out{rows, {}, {}, std::vector<double>(problem_.pieces + 1, -1)};
  for (const auto& c : problem_.classes) {
    class_facts k;
    k.kind = c.kind;
    for (std::size_t i = 0; i < out.classes.size() && !k.table; ++i)
      if (problem_.classes[i].tensor == c.tensor) k.table = out.classes[i].table;
    if (!k.table) {
      out.tables.push_back(
          std::make_unique<stage_table>(c_, job_, c.tensor, rows, types, pipelines));
      k.table = out.tables.back().get();
    }
    const auto& gpu = c_.gpus[kinds_[c.kind].gpu];
    k.memory_bytes = gpu.memory_bytes();
    k.launch_s = launch_s(job_, gpu);
    const link_floors::tensor_sizes sizes{k.table->min_activation_bytes(),
                                          k.table->max_activation_bytes()};
    k.send_s = links_->send_s(c.kind, c.tensor, sizes);
    // Each way; a program's stage, too, sends beside its steps.
    k.crossing_s = crosses() ? links_->crossing_s(c.kind, c.tensor, sizes) : cannot_be;
    k.receive_s = links_->receive_s(c.kind, largest_tensor_, sizes);
    k.hop_s = k.send_s + k.launch_s + k.receive_s;
    k.leaving_send_s = links_->leaving_send_s(c.kind, c.tensor, sizes);
    k.leaving_receive_s = links_->leaving_receive_s(c.kind, largest_tensor_, sizes);
    out.classes.push_back(k);
  }
  return out;
}

const range_costs& cost_model_times::costs(const class_facts& k, std::uint32_t first,
                                           std::uint32_t count, std::uint32_t behind) const {
  if (behind == 0) return k.table->last(k.kind, piece(first));
  return k.table->middle(k.kind, piece(first), piece(first + count) - piece(first));
}

space_times::stage_floor cost_model_times::floor_of(std::uint32_t rows, std::uint32_t cls,
                                                    std::uint32_t first, std::uint32_t count,
                                                    std::uint32_t behind) const {
  const auto& c = facts(rows).classes[cls];
  const auto& k = costs(c, first, count, behind);
  if (!(k.bytes + (behind + 1) * k.bytes_each < c.memory_bytes)) return {cannot_be, cannot_be, 0};
  const double own_s = k.forward_s + k.backward_s;
  if (behind == 0 && first == 0) return {own_s, k.step_s(), 0};
  if (!sends_in_steps_)
    return {own_s + (behind > 0 ? 2 * std::min(c.send_s, c.crossing_s) : 0), k.step_s(),
            behind * k.forward_s};
  // A program's stage is busy while it sends or receives: each way at both ends of a hop.
  const double hops = (behind > 0 ? 1 : 0) + (first > 0 ? 1 : 0);
  const double in_steps = c.crossing_s < cannot_be ? 0 : hops * c.hop_s;
  return {own_s + hops * std::min(c.hop_s, c.crossing_s), k.step_s() + in_steps,
          behind * (k.forward_s + in_steps)};
}

std::vector<std::uint64_t> cost_model_times::summed_bytes_of(const space_plan& plan) const {
  std::vector<std::uint64_t> bytes(plan.stages());
  for (std::uint32_t i = 0; i < plan.stages(); ++i) {
    const auto end = i + 1 < plan.stages() ? plan.firsts[i + 1] : problem_.pieces;
    for (const auto& g : plan.groups) {
      const auto& sum = sum_of(plan.rows, g.seats[i].cls, plan.firsts[i], end - plan.firsts[i]);
      bytes[i] = std::max(bytes[i], static_cast<std::uint64_t>(sum.bytes));
    }
  }
  return bytes;
}

/// A tied embedding's gradients are its first stage's. Gradients do not depend on rows.
const cost_model_times::stage_sum& cost_model_times::sum_of(std::uint32_t rows, std::uint32_t cls,
                                                            std::uint32_t first,
                                                            std::uint32_t count) const {
  const auto classes = problem_.classes.size();
  if (sums_.empty()) sums_.resize(problem_.pieces * (problem_.pieces + 1) * (classes + 1));
  auto* of_range = &sums_[(first * (problem_.pieces + 1) + count) * (classes + 1)];
  if (of_range[cls].bytes >= 0) return of_range[cls];
  const auto& all = facts(rows).classes;
  const bool last = first + count == problem_.pieces;
  auto& smallest = of_range[classes];
  smallest = {cannot_be, cannot_be};
  for (std::size_t k = 0; k < classes; ++k) {
    const auto& stage = costs(all[k], first, count, last ? 0 : 1);
    const double bytes = std::max(0.0, stage.gradient_bytes - stage.tied_bytes);
    const double rate = links_->card_bytes_s(all[k].kind);
    const double rings = divides_words(job_) ? problem_.classes[k].tensor : 1;
    of_range[k] = {bytes, rate > 0 ? rings * bytes / rate : 0};
    smallest.bytes = std::min(smallest.bytes, bytes);
    smallest.over_card_s = std::min(smallest.over_card_s, of_range[k].over_card_s);
  }
  return of_range[cls];
}

// In one datacenter a stage of n peers, h of them on its node, sends 2 (n - h) chunks of b / n over
// its card. Peers of several kinds, or of which one ends later, wait for each other: the sum begins
// when all are there, and then takes as long as the slowest of a peer's routes, of which there are
// as many as unlike cards; but the stage that ends last, of whatever class, has all of its own.
double cost_model_times::sum_floor_s(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                                     std::uint32_t count, std::uint32_t pipelines,
                                     bool kinds) const {
  if (pipelines < 2 || links_->has_domains() || job_.pipeline.overlap.value_or(false)) return 0;
  // Devices of one node may take what was measured there.
  if (sums_on_devices(*job_.train, job_.train->device)) return 0;
  const auto& c = problem_.classes[cls];
  const auto& on_node = peers_[kinds ? 1 : 0];
  const auto part = [&](double here) { return 2 * std::max(0.0, 1 - here / pipelines); };
  const double cards = kinds ? links_->unlike_cards() : links_->unlike_cards(c.kind);
  auto of_any = sum_of(rows, cls, first, count);
  double in_one = part(on_node.here[cls]) * of_any.over_card_s;
  if (kinds) {
    of_any = sum_of(rows, static_cast<std::uint32_t>(problem_.classes.size()), first, count);
    in_one = std::max(in_one / cards, part(on_node.max) * of_any.over_card_s);
  }
  if (!problem_.space.several_datacenters || problem_.datacenters < 2) return in_one;
  const double here = kinds ? on_node.max : on_node.here[cls];
  return std::min(in_one, sum_of_runs_s(of_any.over_card_s / cards, of_any.bytes, here, pipelines,
                                        kinds ? largest_tensor_ : c.tensor));
}

// Over several datacenters the n peers are in R runs, of which the largest has a, a >= n / R: each
// of these sends 2 (a - h) chunks of b / a over its card, and between runs another 2 (R - 1) such
// chunks follow each other. For a given R that is linear in 1 / a, so smallest at one of its ends:
// n / R, or all but for R - 1 peers. At the first it is convex in R, and smallest where
// 2 R - 1 = h x (card's time) / (WAN's time), but for the runs so small that all is on one node.
double cost_model_times::sum_of_runs_s(double card_s, double bytes, double here,
                                       std::uint32_t pipelines, std::uint32_t flows) const {
  const double rate = links_->wan_bytes_s(flows), n = pipelines;
  if (!(rate > 0)) return 0;
  const double wan_s = bytes / rate;
  const auto s_of = [&](double runs, double largest) {
    return card_s * std::max(0.0, 1 - here / largest) + (runs - 1) / largest * wan_s;
  };
  const double all_on_node = std::max(2.0, n / here);
  const double runs =
      std::clamp(wan_s > 0 ? (here * card_s / wan_s + 1) / 2 : all_on_node, 2.0, all_on_node);
  return 2 * (links_->wan_latency_s() + std::min(s_of(runs, n / runs), s_of(2, n)));
}

double cost_model_times::tail_floor_s(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                                      std::uint32_t count, std::uint32_t pipelines) const {
  return tail_floor_s(rows, cls, first, count, pipelines, problem_.space.several_kinds);
}

/// A stage's sum and update begin with its last backward: the backwards of the stages in front hide
/// no more than those of all pieces before it where they take the longest, and their sends.
double cost_model_times::tail_floor_s(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                                      std::uint32_t count, std::uint32_t pipelines,
                                      bool kinds) const {
  const bool last = first + count == problem_.pieces;
  const auto& k = costs(facts(rows).classes[cls], first, count, last ? 0 : 1);
  const double update_s = job_.pipeline.overlap.value_or(false) ? 0 : k.update_s;
  return std::max(0.0, sum_floor_s(rows, cls, first, count, pipelines, kinds) + update_s -
                           hidden_s(rows, first));
}

/// The longest that backwards of the pieces before `first` may take, with their sends.
double cost_model_times::hidden_s(std::uint32_t rows, std::uint32_t first) const {
  if (first == 0) return 0;
  const auto& of_rows = facts(rows);
  auto& known = of_rows.hidden_s[first];
  if (known >= 0) return known;
  for (const auto& c : of_rows.classes) {
    const auto& k = costs(c, 0, first, 1);
    // Pieces that no GPU of the class can hold at a time, in as many stages as there may be.
    const auto stages = std::min(first, problem_.max_stages - 1);
    const auto bytes = c.table->max_activation_bytes();
    double send = 2 * links_->longest_send_s(c.kind, bytes);
    if (crosses()) send = std::max(send, links_->longest_crossing_s(bytes));
    known = std::max(known, k.backward_s + stages * (send + c.launch_s));
  }
  return known;
}

/// A send between two seats of a pipeline, as the shortest link that there may be takes it; asked
/// for once.
double cost_model_times::hop_s(std::uint32_t rows, const space_seat& from, const space_seat& to,
                               double bytes) const {
  const auto seats = problem_.classes.size() * problem_.datacenters;
  auto& hops = facts(rows).hops;
  if (hops.empty()) hops.resize(seats * seats);
  const auto at = [&](const space_seat& x) {
    return std::size_t{x.cls} * problem_.datacenters + x.datacenter;
  };
  auto& known = hops[at(from) * seats + at(to)];
  if (known.bytes == bytes) return known.s;
  const auto place = [&](const space_seat& x) {
    const auto& c = problem_.classes[x.cls];
    return link_floors::place{c.kind, x.datacenter, c.tensor};
  };
  const bool crossing = from.datacenter != to.datacenter;
  known = {bytes, crossing ? links_->crossing_s(place(from), place(to), bytes)
                           : links_->send_s(place(from), place(to), bytes)};
  return known.s;
}

// The closed form of a group of one pipeline (planners/cost/closed_form.cpp) with the shortest
// links that its stages may have inside datacenters, and those that they have between them.
double cost_model_times::line_s(const space_line& line, std::uint32_t microbatches) const {
  const auto stages = static_cast<std::uint32_t>(line.firsts.size());
  const auto& all = facts(line.rows).classes;
  auto& [steps, hop, wan] = scratch_;  // a send on the way; its part of the WAN
  steps.clear();
  hop.assign(stages, 0);
  wan.assign(stages, 0);
  for (std::uint32_t i = 0; i < stages; ++i) {
    const auto& c = all[line.seats[i].cls];
    const auto end = i + 1 < stages ? line.firsts[i + 1] : problem_.pieces;
    const auto behind = stages - 1 - i;
    const auto& k = costs(c, line.firsts[i], end - line.firsts[i], behind);
    if (!(k.bytes + (behind + 1) * k.bytes_each < c.memory_bytes)) return cannot_be;
    steps.push_back({k.forward_s, k.recompute_s, k.backward_s});
    hop[i] = k.activation_bytes;
  }
  for (std::uint32_t i = 0; i + 1 < stages; ++i) {
    const auto &a = line.seats[i], &b = line.seats[i + 1];
    const double bytes = std::exchange(hop[i], 0.0);
    const double there = hop_s(line.rows, a, b, bytes);
    if (a.datacenter != b.datacenter) {
      wan[i] = there;
      hop[i] = there + links_->crossing_latency_s(a.datacenter, b.datacenter);
      continue;
    }
    const double back = hop_s(line.rows, b, a, bytes);
    if (!sends_in_steps_) {
      hop[i] = std::max(there, back);
      continue;
    }
    steps[i].forward += there + all[a.cls].launch_s;
    steps[i + 1].forward += there;
    steps[i + 1].backward += back + all[b.cls].launch_s;
    steps[i].backward += back;
  }
  hop[stages - 1] = 0;
  return one_pipeline_s(steps, hop, wan, microbatches);
}

}  // namespace troupe::planners
