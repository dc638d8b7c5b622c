#include "planners/troupe/pipelined_plans.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "planners/cost/plan_time.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/policy/adaptive_plan.hpp"
#include "planners/search/job_space/find_pipelines.hpp"

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

bool spans_pools(const std::vector<gpu_pool>& pools, const plan& how) {
  if (how.stages.empty()) return false;
  if (how.groups) return true;
  return std::ranges::none_of(pools, [&](const gpu_pool& pool) {
    return is_for(how, pool.gpu) && widest_group(how) <= pool.node_gpus &&
           how.gpus() <= pool.nodes.size() * pool.node_gpus;
  });
}

std::vector<plan> faster_pipelines(const cluster& c, const std::vector<gpu_pool>& pools,
                                   const job_spec& job, double best, planning_budget& budget) {
  constexpr double min_speedup = 1.25;            // of a plan that spans pools
  constexpr std::uint64_t searched = 50'000'000;  // the search finds nearly the best plan early
  constexpr std::size_t wanted = 4;
  auto own = budget.part(searched);
  const auto found = find_pipelines(c, idle_index{c}, job, widest_space(), wanted, own);
  if (!found) return {};
  std::vector<plan> out;
  for (const auto& p : found->plans) {
    const double gain = spans_pools(pools, p.how) ? min_speedup : 1;
    if (p.how.samples_per_s > gain * best) out.push_back(p.how);
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
    if (p.stages.empty() || p.groups || !is_for(p, gpu)) continue;
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
