#include "planners/troupe/pipelined_plans.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "planners/cost/plan_time.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/policy/adaptive_plan.hpp"

namespace troupe::planners {

namespace {

bool are_alike(const gpu_pool& a, const gpu_pool& b) {
  return a.gpu == b.gpu && a.node_gpus == b.node_gpus && a.nodes.size() <= b.nodes.size();
}

/// Whether all stages are planned for GPUs of this type.
bool is_for(const plan& p, gpu_index gpu) {
  return std::ranges::all_of(p.stages, [&](const plan_stage& s) { return s.gpu == gpu; });
}

std::uint32_t widest_group(const plan& p) {
  return std::ranges::max(p.stages, {}, &plan_stage::tensor_parallel).tensor_parallel;
}

/// Planning units for all shapes of a number of GPUs: each cuts the model's pieces.
std::uint64_t units_of(const job_spec& job, std::uint32_t gpus) {
  constexpr std::uint64_t units_a_piece = 100;
  const auto doublings = static_cast<std::uint64_t>(std::bit_width(gpus));
  return units_a_piece * pieces_of(job.model) * doublings * doublings / 2;
}

}  // namespace

// Plans are made once, when a job is submitted, and each takes a search over all even shapes. So
// only one pool of each kind is planned for (the largest: a smaller one has the same counts, but
// fewer), and a pool is given up after four counts that gain nothing.
std::vector<plan> pipelined_plans(const cluster& c, const std::vector<gpu_pool>& pools,
                                  const job_spec& job, planning_budget& budget) {
  constexpr int max_useless = 4;
  std::vector<plan> out;
  for (std::size_t p = 0; p < pools.size(); ++p) {
    const auto& pool = pools[p];
    const auto same = [&](const gpu_pool& other) {
      return &other != &pool && are_alike(pool, other) &&
             (&other < &pool || !are_alike(other, pool));
    };
    if (std::ranges::any_of(pools, same)) continue;
    const auto max = max_of_type(c, job, pool.gpu);
    double best = 0;
    int useless = 0;
    for (const auto gpus : counts_of(pool)) {
      if (gpus > max || useless >= max_useless) break;
      if (!budget.spend(units_of(job, gpus))) return out;
      auto how = adaptive_plan(c, pool, job, gpus);
      const bool gains = how && how->samples_per_s >= best * min_gain;
      useless = gains || best == 0 ? 0 : useless + 1;
      if (!gains) continue;
      best = how->samples_per_s;
      out.push_back(std::move(*how));
    }
  }
  return out;
}

// Pools of one type may be in datacenters with different links, so that a plan's speed is evaluated
// again where there are several.
std::optional<plan> fastest_pipelines(const cluster& c, const std::vector<gpu_pool>& pools,
                                      std::uint32_t pool, std::uint32_t gpus, const job_spec& job,
                                      const std::vector<plan>& plans, double bytes_floor) {
  const auto gpu = pools[pool].gpu;
  const bool only = std::ranges::count(pools, gpu, &gpu_pool::gpu) == 1;
  std::optional<plan> best;
  for (const auto& p : plans) {
    if (p.stages.empty() || !is_for(p, gpu)) continue;
    if (p.gpus() != gpus) continue;
    if (p.bytes_per_gpu <= bytes_floor || widest_group(p) > pools[pool].node_gpus) continue;
    auto how = p;
    if (!only) {
      const auto e = evaluate(c, job, how, pack(pools[pool], gpus), fidelity::closed);
      if (!e) continue;
      how.samples_per_s = e->samples_per_s;
    }
    if (!best || how.samples_per_s > best->samples_per_s) best = std::move(how);
  }
  return best;
}

}  // namespace troupe::planners
