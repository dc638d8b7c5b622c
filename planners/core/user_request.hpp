#pragma once

#include <optional>
#include <vector>

#include "messages/cluster.hpp"
#include "messages/job.hpp"
#include "messages/plan.hpp"
#include "planners/core/idle_index.hpp"

// What policies share that go by the user's own number of GPUs (docs/planners/baselines.md).

namespace troupe::planners {

/// The GPUs of the cluster's largest node: no tensor group is larger.
std::uint32_t largest_node(const cluster& c);

/// A split of the job over exactly the GPUs of `where`: of the (data, tensor) pairs whose product
/// is their number, the fastest that the smallest of them can hold. If none can, the pair that
/// needs least memory, with bytes_per_gpu 0. Pairs that need at most `bytes_floor` are passed over.
/// `max_tensor`: largest_node(c), for callers that ask often; 0: looked up.
plan split_for(const cluster& c, const job_spec& job, const allocation& where,
               double bytes_floor = 0, std::uint32_t max_tensor = 0);

/// GPU types by the speed that training reaches on them, fastest first; then by index.
std::vector<gpu_index> fastest_first(const cluster& c);

/// `gpus` idle GPUs of the fastest type of `types` that has as many, by best fit on it; else of
/// several types, the fastest first; or nothing, if too few are idle.
std::optional<allocation> fastest_idle(const idle_index& idle, std::uint32_t gpus,
                                       const std::vector<gpu_index>& types);

}  // namespace troupe::planners
