#pragma once

#include <optional>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"
#include "planners/cluster/idle_index.hpp"
#include "planners/cluster/snapshot.hpp"

// Shared by the policies that use the user's own number of GPUs (docs/planners/baselines.md).

namespace troupe::planners {

/// The GPUs of the cluster's largest node: the maximum size of a tensor group.
std::uint32_t largest_node(const cluster& c);

/// The job as one that waits, if its user's request alone places it; nothing: its plans are made
/// otherwise (pipelines, programs with an exact number of GPUs).
std::optional<job_view> placed_by_request(const job_spec& job);

/// A split of the job over exactly the GPUs of `where`: of the (data, tensor) pairs with that
/// product, the fastest that the smallest GPU can hold. If none fits, the pair that needs the least
/// memory, with bytes_per_gpu 0. Pairs that need at most `bytes_floor` are skipped. `max_tensor`:
/// largest_node(c), for frequent callers; 0: computed.
plan split_for(const cluster& c, const job_spec& job, const allocation& where,
               double bytes_floor = 0, std::uint32_t max_tensor = 0);

/// GPU types by training speed, fastest first, then by index.
std::vector<gpu_index> fastest_first(const cluster& c);

/// `gpus` idle GPUs by best fit: of the fastest type in `types` that has enough, else of several
/// types, fastest first; nothing if too few are idle.
std::optional<allocation> fastest_idle(const idle_index& idle, std::uint32_t gpus,
                                       const std::vector<gpu_index>& types);

}  // namespace troupe::planners
