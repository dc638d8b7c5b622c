#include "planners/crius/cell_tuner.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>
#include <utility>

#include "messages/base/time.hpp"
#include "messages/domain/tensor_split.hpp"
#include "planners/cost/batch_split.hpp"
#include "planners/cost/model_partition.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/devices/profile.hpp"
#include "planners/model/declared_memory.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/policy/adaptive_plan.hpp"

namespace troupe::planners {

namespace {

/// The plan of a Cell with `data` replicas of every stage, so `gpus / data` GPUs per replica. None:
/// GPUs, model, batch or memory do not allow it.
std::optional<plan> plan_of_replicas(const cluster& c, const gpu_pool& pool, const job_spec& job,
                                     const cell& of, std::uint32_t data) {
  plan how;
  how.data_parallel = data;
  how.pipeline_parallel = static_cast<std::uint32_t>(of.stages.stages.size());
  how.gpu_types = {pool.gpu};
  for (const auto& s : of.stages.stages) {
    const auto tensor = s.gpus / data;
    if (s.gpus % data != 0 || tensor > pool.node_gpus) return {};
    if (!splits_into(job.model, tensor)) return {};
    how.tensor_parallel = std::max(how.tensor_parallel, tensor);
    how.stages.push_back({s.first, s.count, tensor, pool.gpu, 0});
  }
  const auto batch = split_batch(job, how.pipeline_parallel, data);
  const auto where = pack(pool, how.gpus());
  return with_figures(c, job, std::move(how), batch, where);
}

}  // namespace

// For N = 2^n GPUs the middle of Figure 11 is tensor = 2^(n/2), "half-hybrid parallelism"; with an
// odd n both halves include the plans on either side of it.
bool kept_by_tuner(std::uint32_t gpus, bool favoured_data, std::uint32_t tensor) {
  const auto log = std::bit_width(gpus) - 1;
  return favoured_data ? tensor <= 1U << ((log + 1) / 2) : tensor >= 1U << (log / 2);
}

namespace {

bool is_kept(const cell& of, std::size_t stage, std::uint32_t tensor) {
  const auto& favoured = of.space.plans[stage][of.estimated->chosen[stage]];
  return kept_by_tuner(of.stages.stages[stage].gpus, favoured.tensor == 1, tensor);
}

}  // namespace

// Instead of measuring the plans that are left, as the paper does, finds the best of them by the
// estimate's formula; `measured_plans` counts how many the paper would measure.
tuning tune(const cell& of) {
  const auto half = restricted(
      of.space, [&](std::size_t i, const stage_plan& p) { return is_kept(of, i, p.tensor); });
  return {*best_assembly(half), *best_assembly(of.space), assemblies_of(half)};
}

whole_space full_space(const std::vector<cell>& all, const cell& of) {
  whole_space whole{never, 0};
  for (const auto& x : all) {
    if (x.pool != of.pool || x.gpus != of.gpus) continue;
    whole.plans += assemblies_of(x.space);
    if (const auto best = best_assembly(x.space))
      whole.best_s = std::min(whole.best_s, best->estimate_s);
  }
  return whole;
}

// Initializing Cells (section 6.1): 3 counts times log(N_G) depths, for each pool. Stages depend on
// the pool only by the size of its nodes, and by its GPUs' profile of a program's layers, and are
// determined once for each.
std::vector<cell> cells_of(const cluster& c, const std::vector<gpu_pool>& pools,
                           const job_spec& job) {
  std::vector<cell> cells;
  const auto chain = chain_of(job.model);
  for (const auto gpus : cell_counts(job))
    for (const auto depth : cell_depths(job, gpus)) {
      // By the GPUs of a node, and the profile.
      std::map<std::pair<std::uint32_t, const device_profile*>, cell_stages> by_node;
      for (std::uint32_t p = 0; p < pools.size(); ++p) {
        const auto& gpu = c.gpus[pools[p].gpu];
        const bool enough = gpus <= pools[p].nodes.size() * pools[p].node_gpus &&
                            (gpu.quota == 0 || gpus <= gpu.quota);
        if (!enough || !allows(job, gpu)) continue;
        // As each pipeline has one replica of every stage, a stage with k times the GPUs of another
        // has tensor groups that are k times as large, and a group must be on one node.
        const auto* profile = has_program_layers(job.model) ? profile_of(job, gpu) : nullptr;
        const auto [at, fresh] = by_node.try_emplace({pools[p].node_gpus, profile});
        if (fresh)
          at->second = determine_stages(profile ? chain_of(job.model, profile) : chain, gpus, depth,
                                        0.05, pools[p].node_gpus);
        const auto& stages = at->second;
        if (stages.stages.empty()) continue;
        cell x{p, gpus, stages, space_of(c, pools[p], job, stages), {}, 0, {}};
        const auto few = sampled(x.space);
        x.assemblies = assemblies_of(few);
        x.estimated = best_assembly(few);
        cells.push_back(std::move(x));
      }
    }
  return cells;
}

std::optional<plan> runnable_plan(const cluster& c, const gpu_pool& pool, const job_spec& asked,
                                  const cell& of) {
  const auto job = as_scheduled(asked);
  std::optional<plan> best, kept;
  std::uint32_t narrowest = of.gpus;
  for (const auto& s : of.stages.stages) narrowest = std::min(narrowest, s.gpus);
  for (std::uint32_t data = 1; data <= narrowest; data *= 2) {
    auto how = plan_of_replicas(c, pool, job, of, data);
    if (!how) continue;
    bool favoured = of.estimated.has_value();
    for (std::size_t i = 0; favoured && i < how->stages.size(); ++i)
      favoured = is_kept(of, i, how->stages[i].tensor_parallel);
    auto& of_kind = favoured ? kept : best;
    if (!of_kind || how->samples_per_s > of_kind->samples_per_s) of_kind = std::move(how);
  }
  return kept ? kept : best;
}

std::optional<plan> program_plan(const cluster& c, const gpu_pool& pool, const job_spec& job,
                                 std::uint32_t gpus) {
  std::optional<plan> best;
  for (std::uint32_t t = 1; t <= std::min(gpus, pool.node_gpus); t *= 2) {
    if (gpus % t != 0 || !splits_into(job.model, t)) continue;
    plan how;
    how.data_parallel = gpus / t;
    how.tensor_parallel = t;
    how.gpu_types = {pool.gpu};
    how.bytes_per_gpu = program_bytes(job, how.data_parallel, t, c.settings.memory_headroom);
    if (how.data_parallel > job.global_batch ||
        !(how.bytes_per_gpu < c.gpus[pool.gpu].memory_bytes()))
      continue;
    const auto e = estimate_iteration(c, job, how, pack(pool, gpus));
    set_figures(how, e);
    if (!best || how.samples_per_s > best->samples_per_s) best = std::move(how);
  }
  return best;
}

// Sorted by pool, count and estimate, the first `tuned_cells` Cells of each pool and count that can
// run are tuned, and the one with the faster plan is kept.
std::vector<cell> best_cells(const cluster& c, const std::vector<gpu_pool>& pools,
                             const job_spec& job) {
  auto all = cells_of(c, pools, job);
  std::erase_if(all, [](const cell& x) { return !x.estimated; });
  const auto key = [](const cell& x) {
    return std::tuple(x.pool, x.gpus, x.estimated ? x.estimated->estimate_s : never);
  };
  std::ranges::stable_sort(all, {}, key);
  std::vector<cell> best;
  std::size_t tuned = 0;  // Cells of the same pool and count so far
  for (auto& x : all) {
    const bool another = !best.empty() && best.back().pool == x.pool && best.back().gpus == x.gpus;
    if (another && tuned == tuned_cells) continue;
    x.tuned = runnable_plan(c, pools[x.pool], job, x);
    if (!x.tuned) continue;
    tuned = another ? tuned + 1 : 1;
    if (!another)
      best.push_back(std::move(x));
    else if (x.tuned->samples_per_s > best.back().tuned->samples_per_s)
      best.back() = std::move(x);
  }
  return best;
}

}  // namespace troupe::planners
