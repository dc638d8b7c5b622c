#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planners/cluster/snapshot.hpp"
#include "planners/policy/adaptive_plan.hpp"

namespace troupe::planners {

/// Data-parallel plans of these counts on every pool that the job may use. Where a pool holds the
/// job at a count but only with its parallelism adapted, that plan; if no count of any pool holds
/// it, of twice the counts, and so on. Refuses what no pool can hold at all.
expected<std::vector<plan>> data_parallel_plans(const cluster& c, const job_spec& job,
                                                std::vector<std::uint32_t> counts);

/// A plan of a job on a pool whose nodes can hold it.
struct pool_option {
  std::uint32_t pool = 0;
  const plan* how = nullptr;
};
std::vector<pool_option> options_on(const std::vector<gpu_pool>& pools, const job_view& j);
/// The fewest GPUs of any of the job's plans that are no fewer than it asks for; else the most.
std::uint32_t requested(const job_view& j);

/// The pool that holds all of an allocation; pools.size(): none.
std::uint32_t pool_of(const std::vector<gpu_pool>& pools, const allocation& where);

/// Has it plans, and can it be stopped and started elsewhere?
bool may_be_moved(const job_view& j);

}  // namespace troupe::planners
