#include "planners/policy/adaptive_plan.hpp"

#include <algorithm>
#include <compare>
#include <map>
#include <utility>

#include "messages/base/folds.hpp"
#include "messages/base/time.hpp"
#include "messages/domain/tensor_split.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cost/model_partition.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/model/job_memory.hpp"
#include "planners/model/model_chain.hpp"
#include "planners/plans/user_request.hpp"
#include "planners/policy/placement.hpp"
#include "planners/policy/wrapped_policy.hpp"

namespace troupe::planners {

namespace {

/// Pieces of each stage: cut_evenly minimizes the largest stage's FLOPs among cuts whose stages fit
/// a GPU's memory. Where there is no such cut, the even cut alone is returned, and even_plan
/// rejects it by the exact memory.
std::vector<std::uint32_t> even_cut(const job_spec& job, const even_shape& shape,
                                    const stage_load& load, const gpu_type& gpu) {
  if (has_program_layers(job.model))
    return mapped(split_model(job, shape.stages, load, gpu), &stage_part::count);
  const model_chain chain{job.model, divides_words(job)};
  const auto pieces = pieces_of(job.model);
  std::vector<chain_link> links;
  for (std::uint32_t i = 0; i < pieces; ++i) {
    const auto part = part_of_stage(chain, job.model, i, 1, shape.tensor, i + 1 == pieces);
    links.push_back({part.flops, bytes_of_pieces(job, part, load)});
  }
  auto counts = cut_evenly(links, shape.stages, load.max_bytes);
  return counts.empty() ? cut_evenly(links, shape.stages) : counts;
}

}  // namespace

job_spec as_scheduled(job_spec job) {
  if (!job.train) job.train.emplace().schedule = "megatron";
  return job;
}

std::optional<plan> with_figures(const cluster& c, const job_spec& job, plan how,
                                 const batch_split& batch, const allocation& where) {
  const auto parts = parts_of(job, how.stages);
  if (batch.microbatches == 0 || !parts) return {};
  how.microbatches = batch.microbatches;
  how.rows = batch.rows;
  const auto types = mapped(how.stages, [&](const plan_stage& s) { return &c.gpus[*s.gpu]; });
  const auto bytes = bytes_by_stage(job, batch, *parts, c.settings.memory_headroom, types);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    auto& stage = how.stages[i];
    if (!(bytes[i] < c.gpus[*stage.gpu].memory_bytes())) return {};
    stage.bytes_per_gpu = bytes[i];
    how.bytes_per_gpu = std::max(how.bytes_per_gpu, bytes[i]);
  }
  const auto e = evaluate(c, job, how, where, fidelity::closed);
  if (!e) return {};
  set_figures(how, *e);
  return how;
}

// Simulated work names no schedule; it is evaluated under Megatron-LM's 1F1B, which all systems of
// the evaluation in Crius' paper use. The closed form is exact enough to compare shapes, and an
// adaptive policy asks for hundreds of them.
std::optional<plan> even_plan(const cluster& c, const gpu_pool& pool, const job_spec& asked,
                              const even_shape& shape, const allocation& where) {
  const auto& m = asked.model;
  if (!can_split(m, shape.stages) || shape.tensor > pool.node_gpus) return {};
  if (!splits_into(m, shape.tensor)) return {};
  const auto job = as_scheduled(asked);
  const auto batch = split_batch(job, shape.stages, shape.data);
  if (batch.microbatches == 0) return {};
  const double memory = c.gpus[pool.gpu].memory_bytes();
  plan how;
  how.data_parallel = shape.data;
  how.pipeline_parallel = shape.stages;
  how.tensor_parallel = shape.tensor;
  how.gpu_types = {pool.gpu};
  std::uint32_t first = 0;
  for (const auto n :
       even_cut(job, shape, load_of(job, batch, shape.stages - 1, memory - guest_bytes(job)),
                c.gpus[pool.gpu])) {
    how.stages.push_back({first, n, shape.tensor, pool.gpu, 0});
    first += n;
  }
  return with_figures(c, job, std::move(how), batch, where);
}

std::optional<plan> even_plan(const cluster& c, const gpu_pool& pool, const job_spec& job,
                              const even_shape& shape) {
  return even_plan(c, pool, job, shape, pack(pool, shape.gpus()));
}

// All ways to write the number of GPUs as d * p * t with p and t powers of two: at most
// log2(n)^2 / 2 shapes.
std::optional<plan> adaptive_plan(const cluster& c, const gpu_pool& pool, const job_spec& job,
                                  const allocation& where) {
  const auto gpus = total_gpus(where);
  std::optional<plan> best;
  for (std::uint32_t t = 1; t <= gpus; t *= 2)
    for (std::uint32_t p = 1; p * t <= gpus; p *= 2) {
      if (gpus % (p * t) != 0) continue;
      auto how = even_plan(c, pool, job, {gpus / (p * t), p, t}, where);
      if (how && (!best || how->samples_per_s > best->samples_per_s)) best = std::move(how);
    }
  return best;
}

std::optional<plan> adaptive_plan(const cluster& c, const gpu_pool& pool, const job_spec& job,
                                  std::uint32_t gpus) {
  return adaptive_plan(c, pool, job, pack(pool, gpus));
}

// The baselines of Crius "schedule jobs with data profiled from data parallelism": they expect of n
// GPUs what n / unit replicas of the smallest unit that holds the job give, even where another
// shape would be faster.
std::optional<plan> data_parallel_plan(const cluster& c, const gpu_pool& pool, const job_spec& job,
                                       std::uint32_t gpus) {
  for (std::uint32_t unit = 1; unit <= gpus; unit *= 2) {
    const auto one = adaptive_plan(c, pool, job, unit);
    if (!one) continue;
    if (gpus % unit != 0) return {};
    const even_shape shape{gpus / unit * one->data_parallel, one->pipeline_parallel,
                           one->tensor_parallel};
    return even_plan(c, pool, job, shape);
  }
  return {};
}

namespace {

/// With pipelines, or split by data and tensor parallelism alone, whichever is faster.
std::optional<plan> fastest_plan(const cluster& c, const gpu_pool& pool, const job_view& j,
                                 const allocation& where) {
  auto best = adaptive_plan(c, pool, *j.spec, where);
  if (j.facts().pipelines) return best;
  auto split = split_for(c, *j.spec, where, j.history.bytes_floor);
  const bool fits = split.bytes_per_gpu > 0 && split.data_parallel <= j.spec->global_batch;
  if (fits && (!best || split.samples_per_s > best->samples_per_s)) best = std::move(split);
  return best;
}

/// Runs jobs with another plan than the policy had in mind, on the GPUs that it granted. A grant
/// that spans pools keeps the policy's own plan. The search is repeated for every start of alike
/// jobs on alike GPUs, so that answers are remembered; the cache is emptied when it is full, not
/// pruned.
class adaptive_parallelism final : public wrapped_policy {
 public:
  explicit adaptive_parallelism(std::shared_ptr<const policy> inner)
      : wrapped_policy{std::move(inner)} {}

  std::vector<decision> decide(const snapshot& s, random_source& random) const override {
    auto decisions = inner().decide(s, random);
    for (auto& d : decisions) {
      if (!d.starts()) continue;
      const auto* j = view_of(s, d.job);
      if (j && j->plans && j->facts().simulated) replan(s.cluster, *j, d);
    }
    return decisions;
  }

 private:
  void replan(const cluster& c, const job_view& j, decision& d) const {
    for (const auto& pool : pools_of(c, idle_index{c})) {
      if (!pool.contains(d.where)) continue;
      question q{j.plans, j.history.bytes_floor, pool.gpu, pool.node_gpus, pool.datacenter, {}};
      for (const auto& share : d.where) q.gpus.push_back(share.gpus);
      if (known_.size() >= max_known) known_.clear();
      auto at = known_.find(q);
      if (at == known_.end())
        at = known_.emplace(std::move(q), fastest_plan(c, pool, j, d.where)).first;
      if (at->second) d.how = *at->second;
      return;
    }
  }

  /// Jobs whose plans are one list are alike (job_view); it is held, so that its address stays its
  /// own.
  struct question {
    std::shared_ptr<const std::vector<plan>> plans;
    double bytes_floor = 0;
    gpu_index gpu = 0;
    std::uint32_t node_gpus = 0, datacenter = 0;
    std::vector<std::uint32_t> gpus;  // by node

    auto operator<=>(const question&) const = default;
  };
  static constexpr std::size_t max_known = 10'000;

  mutable std::map<question, std::optional<plan>> known_;
};

}  // namespace

std::shared_ptr<const policy> with_adaptive_parallelism(std::shared_ptr<const policy> inner) {
  return std::make_shared<adaptive_parallelism>(std::move(inner));
}

}  // namespace troupe::planners
