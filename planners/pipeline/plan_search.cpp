#include "planners/pipeline/plan_search.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "messages/time.hpp"
#include "planners/core/bounds.hpp"
#include "planners/core/fits.hpp"
#include "planners/cost/batch_split.hpp"
#include "planners/cost/stage_time.hpp"
#include "planners/model/model_chain.hpp"
#include "planners/pipeline/model_partition.hpp"
#include "planners/pipeline/stage_cut.hpp"

namespace troupe::planners {
namespace {

/// Stages of one type of GPU that a shape's pipelines could have.
struct offer {
  gpu_index gpu = 0;
  std::uint32_t stages = 0;   // of each pipeline
  double flops_s = 0;         // of a stage: its GPUs together
  double bytes = 0;           // of one GPU
  double price_per_hour = 0;  // of a stage's GPUs
  link inside;
};

/// How the batch and the GPUs are divided, whatever the set of GPUs is.
struct shape {
  std::uint32_t pipelines = 1, tensor = 1;
  std::vector<offer> offers;
  std::vector<std::size_t> by_speed;  // offers, the fastest first
  double send_s = 0;                  // of one sample's activations, from stage to stage, at least
};

/// A set of stages, by offer, and the best that it could do.
struct candidate {
  std::uint32_t shape = 0;
  std::vector<std::uint32_t> counts;
  double bound = 0;  // of plan_score
};

/// GPUs of a type that a job may be given: idle, in groups of one node, and within the quota.
std::uint32_t groups_of(const cluster& c, const idle_index& idle, gpu_index g,
                        std::uint32_t tensor) {
  std::uint32_t groups = 0;
  for (node_index n = 0; n < c.nodes.size(); ++n)
    if (c.nodes[n].gpu == g) groups += idle.idle(n) / tensor;
  if (c.gpus[g].quota > 0) groups = std::min(groups, c.gpus[g].quota / tensor);
  return groups;
}

/// Over the fastest link that could be between two stages.
double least_send_s(const cluster& c, const idle_index& idle, const job_spec& job,
                    std::uint32_t tensor) {
  double bytes = never;
  const model_chain chain{job.model};
  for (std::uint32_t i = 0; i + 1 < pieces_of(job.model); ++i)
    bytes = std::min(bytes, chain.range(i, 1).output_bytes);
  double bytes_s = 0;
  for (node_index n = 0; n < c.nodes.size(); ++n) {
    bytes_s = std::max(bytes_s, c.nodes[n].inter.bytes_s());
    if (idle.idle(n) >= 2 * tensor) bytes_s = std::max(bytes_s, c.nodes[n].intra.bytes_s());
  }
  return bytes == never || bytes_s == 0 ? 0 : bytes / bytes_s;
}

std::vector<shape> shapes_of(const cluster& c, const idle_index& idle, const job_spec& job) {
  std::vector<shape> shapes;
  std::uint32_t largest = 0;
  for (const auto& n : c.nodes) largest = std::max(largest, n.gpus);
  for (std::uint32_t t = 1; t <= largest; t *= 2) {
    if (job.model.operators.empty() && job.model.heads % t != 0) break;
    for (std::uint32_t d = 1; d <= std::min(job.global_batch, idle.total_idle()); ++d) {
      if (job.global_batch % d != 0) continue;
      shape s{d, t, {}, {}};
      for (gpu_index g = 0; g < c.gpus.size(); ++g) {
        const auto stages = groups_of(c, idle, g, t) / d;
        if (stages == 0) continue;
        const auto node = std::ranges::find(c.nodes, g, &node::gpu);
        const auto& gpu = c.gpus[g];
        s.offers.push_back({g, stages, t * flops_s(device_of(job, gpu)), gpu.memory_bytes(),
                            t * gpu.price_per_hour, node->intra});
      }
      if (s.offers.empty()) continue;
      s.by_speed.resize(s.offers.size());
      std::iota(s.by_speed.begin(), s.by_speed.end(), std::size_t{0});
      std::ranges::sort(s.by_speed, std::greater{},
                        [&](std::size_t i) { return s.offers[i].flops_s; });
      s.send_s = least_send_s(c, idle, job, t);
      shapes.push_back(std::move(s));
    }
  }
  return shapes;
}

/// What stages of a shape take, range by range; each range is asked of the cost model once.
class range_table {
 public:
  range_table(const cluster& c, const job_spec& job, const shape& s, const batch_split& batch)
      : cluster_{c},
        job_{job},
        shape_{s},
        batch_{batch},
        chain_{job.model},
        side_{pieces_of(job.model) + 1},
        known_(s.offers.size() * 2 * side_ * side_) {}

  double seconds(std::size_t kind, std::uint32_t first, std::uint32_t count, std::uint32_t behind) {
    const bool last = behind == 0;
    auto& k = known_[((2 * kind + (last ? 1 : 0)) * side_ + first) * side_ + count];
    if (k.seconds < 0) k = ask(shape_.offers[kind], first, count, last);
    const double bytes = k.bytes + in_flight(job_, batch_, behind) * k.bytes_each;
    return bytes < shape_.offers[kind].bytes ? k.seconds : never;
  }

 private:
  struct entry {
    double seconds = -1;               // a micro-batch's steps together
    double bytes = 0, bytes_each = 0;  // of a GPU: without micro-batches, and for each in flight
  };

  entry ask(const offer& o, std::uint32_t first, std::uint32_t count, bool last) const {
    const auto part = part_of_stage(chain_, job_.model, first, count, shape_.tensor, last);
    // Of the other stages the cost model asks no more than whether there are any.
    const bool alone = last && first == 0;
    std::vector<stage_part> parts(alone ? 1 : 2);
    const auto at = static_cast<std::uint32_t>(last && !alone ? 1 : 0);
    parts[at] = part;
    const auto x = costs_of_stage(job_, device_of(job_, cluster_.gpus[o.gpu]), parts, at,
                                  batch_.rows, o.inside);
    const auto bytes = [&](std::uint32_t held) {
      return memory_of(part, {batch_.rows, held, never, job_.pipeline.recompute}).total() *
             (1 + cluster_.settings.memory_headroom);
    };
    return {x.forward_s + x.recompute_s + x.backward_s, bytes(0), bytes(1) - bytes(0)};
  }

  const cluster& cluster_;
  job_spec job_;
  const shape& shape_;
  batch_split batch_;
  model_chain chain_;
  std::size_t side_;
  std::vector<entry> known_;
};

class search {
 public:
  search(const cluster& c, const idle_index& idle, const job_spec& job, std::size_t wanted,
         planning_budget& budget)
      : c_{c}, idle_{idle}, job_{job}, wanted_{wanted}, budget_{budget} {
    // Whoever runs the stages runs them in 1F1B's order.
    if (!job_.train) job_.train.emplace();
    job_.train->schedule = "megatron";
    const auto whole = shape_of(job.model);
    forward_flops_ = whole.forward_flops;
    least_bytes_ = marp_states.total() * whole.parameters * (1 + c.settings.memory_headroom);
  }

  expected<plan_search_result> run() {
    shapes_ = shapes_of(c_, idle_, job_);
    for (std::uint32_t s = 0; s < shapes_.size(); ++s) list_sets(s);
    result_.candidates = queue_.size();
    std::ranges::sort(queue_, [](const candidate& a, const candidate& b) {
      return std::tie(a.bound, a.shape, a.counts) < std::tie(b.bound, b.shape, b.counts);
    });
    for (const auto& x : queue_) {
      result_.bound = x.bound;
      if (result_.plans.size() >= wanted_ && x.bound >= worst()) break;
      if (!budget_.spend(units_of(x))) break;
      place(x);
    }
    if (result_.plans.empty()) return refuse(reason::kind::infeasible, why_none());
    return std::move(result_);
  }

 private:
  /// All sets of a shape's stages, at most as many as the model has pieces.
  void list_sets(std::uint32_t shape) {
    constexpr std::size_t max_sets = 1'000'000;
    std::vector<std::uint32_t> counts(shapes_[shape].offers.size());
    const auto pieces = pieces_of(job_.model);
    for (;;) {
      std::size_t i = 0;
      for (; i < counts.size() && counts[i] == shapes_[shape].offers[i].stages; ++i) counts[i] = 0;
      if (i == counts.size() || queue_.size() >= max_sets || !budget_.spend(1)) return;
      ++counts[i];
      const auto stages = std::accumulate(counts.begin(), counts.end(), 0U);
      if (stages <= pieces) offer_set(shape, counts, stages);
    }
  }

  void offer_set(std::uint32_t shape, const std::vector<std::uint32_t>& counts,
                 std::uint32_t stages) {
    const auto& s = shapes_[shape];
    const auto gpus = stages * s.tensor * s.pipelines;
    if (job_.max_gpus && gpus > *job_.max_gpus) return;
    const auto batch = split_batch(job_, stages, s.pipelines);
    if (batch.microbatches == 0) return;
    double price = 0, bytes = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      price += counts[i] * s.pipelines * s.offers[i].price_per_hour;
      bytes += counts[i] * s.tensor * s.offers[i].bytes;
    }
    if (bytes < least_bytes_) return;
    const double least_s = least_iteration_s(s, counts, stages, batch);
    if (!within_limits(job_, run_s(least_s), price * run_s(least_s) / 3600)) return;
    queue_.push_back({shape, counts, score(least_s, gpus, price)});
  }

  /// What no order and no cut of these stages undercuts in evaluate's closed form, by FLOPs and
  /// sends alone. With f_s a stage's forward, S the sum of all, p stages and m micro-batches, an
  /// iteration takes at least 3 S + f_s (4 m - 3 - p) + sends for each stage but the last, which
  /// does not recompute: 3 S + f_s (3 m - 3). So u = (T - 3 S - sends) / (4 m - 3 - p) bounds every
  /// f_s, and stages of speeds r_s get all the work W done only if W <= u (r_1 + ... + r_j) for
  /// some j of them, the fastest; then 3 S >= 3 j u.
  double least_iteration_s(const shape& s, const std::vector<std::uint32_t>& counts,
                           std::uint32_t stages, const batch_split& batch) const {
    const double m = batch.microbatches, p = stages, work = forward_flops_ * batch.rows;
    const bool again = job_.pipeline.recompute;
    const double own = (again ? 4 : 3) * m - 3 - p, last = 3 * m - 3 - (again ? 0 : 1);
    double speed = 0, least = never;
    if (stages == 1 || own <= 0) {  // one after the other
      for (std::size_t i = 0; i < counts.size(); ++i) speed += counts[i] * s.offers[i].flops_s;
      return 3 * m * work / speed;
    }
    std::uint32_t used = 0;
    for (const auto i : s.by_speed) {
      if (counts[i] == 0) continue;
      if (used == 0) speed = s.offers[i].flops_s * std::max(0.0, own / last - 1);
      // Between two numbers of a kind the value is no less than at one of them.
      for (const auto n : {1U, counts[i]}) {
        const double u = work / (speed + n * s.offers[i].flops_s);
        least = std::min(least, u * (3 * (used + n) + own));
      }
      speed += counts[i] * s.offers[i].flops_s;
      used += counts[i];
    }
    return least + 2 * (p - 1) * batch.rows * s.send_s;
  }

  void place(const candidate& x) {
    ++result_.placed;
    const auto& s = shapes_[x.shape];
    auto job = job_;
    job.pipeline.tensor_parallel = s.tensor;
    const auto stages = std::accumulate(x.counts.begin(), x.counts.end(), 0U);
    auto& table = table_of(x.shape, job, split_batch(job, stages, s.pipelines));
    const auto cut =
        cut_for(x.counts, pieces_of(job.model),
                [&](std::size_t kind, std::uint32_t first, std::uint32_t count,
                    std::uint32_t behind) { return table.seconds(kind, first, count, behind); });
    if (cut.stages.empty()) return;
    std::vector<stage_request> wanted;
    for (const auto& one : cut.stages)
      wanted.push_back({s.offers[one.kind].gpu, one.pieces, s.tensor});
    auto placed = plan_of_stages(c_, idle_, job, wanted, s.pipelines);
    if (placed) keep(std::move(*placed));
  }

  range_table& table_of(std::uint32_t shape, const job_spec& job, const batch_split& batch) {
    auto& table = tables_[{shape, batch.microbatches}];
    if (!table) table = std::make_unique<range_table>(c_, job, shapes_[shape], batch);
    return *table;
  }

  void keep(placed_plan p) {
    if (!fits(c_, idle_, p.how, p.where)) return;
    const double one_s = job_.global_batch / p.how.samples_per_s;
    fastest_s_ = std::min(fastest_s_, run_s(one_s));
    cheapest_ = std::min(cheapest_, p.how.cost_per_hour * run_s(one_s) / 3600);
    if (!within_limits(job_, run_s(one_s), p.how.cost_per_hour * run_s(one_s) / 3600)) return;
    const auto by_score = [&](const placed_plan& a) { return plan_score(job_, a); };
    auto& all = result_.plans;
    all.insert(std::ranges::upper_bound(all, by_score(p), {}, by_score), std::move(p));
    if (all.size() > wanted_) all.pop_back();
  }

  double worst() const { return plan_score(job_, result_.plans.back()); }
  double run_s(double iteration_s) const {
    return iteration_s * static_cast<double>(job_.iterations);
  }
  double score(double iteration_s, std::uint32_t gpus, double price_per_hour) const {
    if (job_.objective == "fastest") return iteration_s;
    return iteration_s * (job_.objective == "cheapest" ? price_per_hour : gpus);
  }
  /// About the steps that cutting it takes.
  std::uint64_t units_of(const candidate& x) const {
    std::uint64_t sets = 1;
    for (const auto n : x.counts) sets *= n + 1;
    return 100 * sets * x.counts.size() + 10'000;
  }
  std::string why_none() const {
    if (auto ok = within_limits(job_, fastest_s_, cheapest_); !ok && fastest_s_ < never)
      return ok.error().text;
    if (budget_.exhausted()) return budget_.none_found().text;
    return fmt::format("no pipeline on the {} idle GPUs has enough memory for '{}'",
                       idle_.total_idle(), job_.model.name);
  }

  const cluster& c_;
  const idle_index& idle_;
  job_spec job_;
  std::size_t wanted_;
  planning_budget& budget_;
  double forward_flops_ = 0;  // of a sample
  double least_bytes_ = 0;    // of a pipeline's GPUs together: the states of all parameters
  std::vector<shape> shapes_;
  std::vector<candidate> queue_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::unique_ptr<range_table>> tables_;
  plan_search_result result_;
  double fastest_s_ = never, cheapest_ = never;  // of all that were placed
};

}  // namespace

double plan_score(const job_spec& job, const placed_plan& p) {
  const double iteration_s = job.global_batch / p.how.samples_per_s;
  if (job.objective == "fastest") return iteration_s;
  return iteration_s * (job.objective == "cheapest" ? p.how.cost_per_hour : p.how.gpus());
}

expected<plan_search_result> search_plans(const cluster& c, const idle_index& all,
                                          const job_spec& job, std::size_t wanted,
                                          planning_budget& budget) {
  std::optional<idle_index> allowed;
  return search{c, allowed_idle(c, all, job, allowed), job, wanted, budget}.run();
}

}  // namespace troupe::planners
