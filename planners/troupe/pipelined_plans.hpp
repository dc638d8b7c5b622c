#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"
#include "planners/cluster/gpu_pools.hpp"
#include "planners/cluster/planning_budget.hpp"

namespace troupe::planners {

// The pipelines among a job's configurations (docs/planners/troupe.md, "Configurations").

/// Speed of a larger count of GPUs over that of a smaller one.
inline constexpr double min_gain = 1.005;

/// The fastest even pipelines (planners/policy/adaptive_plan.hpp) of simulated work on each kind
/// of pool and count, the fewest GPUs first. A count that is not at least 0.5 % faster than a
/// smaller one of the same pool is left out, and so is everything beyond four of these in a row. A
/// spent budget leaves out the rest.
std::vector<plan> pipelined_plans(const cluster& c, const std::vector<gpu_pool>& pools,
                                  const job_spec& job, planning_budget& budget);

/// Whether no pool alone has the GPUs of this plan: a job then holds them to its end.
bool spans_pools(const std::vector<gpu_pool>& pools, const plan& how);

/// Plans of simulated work with `objective: fastest`, the fastest first, by the search over all
/// pools (planners/search/job_space/find_pipelines.hpp) where it finds one that is faster than
/// `best`; where that spans pools, by 1.25 times, since it gives up elasticity. Empty: there is
/// none.
std::vector<plan> faster_pipelines(const cluster& c, const std::vector<gpu_pool>& pools,
                                   const job_spec& job, double best, planning_budget& budget);

/// The fastest of these on `gpus` GPUs of the pool that needs more than `bytes_floor` bytes per
/// GPU, with its speed there.
std::optional<plan> fastest_pipelines(const cluster& c, const std::vector<gpu_pool>& pools,
                                      std::uint32_t pool, std::uint32_t gpus, const job_spec& job,
                                      const std::vector<plan>& plans, double bytes_floor);

}  // namespace troupe::planners
