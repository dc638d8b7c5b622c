#pragma once

#include <vector>

#include "planners/cluster/gpu_pools.hpp"
#include "planners/policy/policy.hpp"
#include "planners/troupe/contender.hpp"

namespace troupe::planners {

/// Starts trainings that are not elastic, which run to their end: by Algorithm 1, in queue order,
/// on idle GPUs and on those of running contenders that come after them (lower priority, or more
/// work left) and are not settling. Takes the GPUs from `free`, which holds the idle ones and those
/// of all contenders; the caller places contenders that lose some anew.
void start_fixed_trainings(const snapshot& s, const job_views& trainings,
                           const std::vector<contender>& contenders, const troupe_options& o,
                           free_gpus& free, std::vector<decision>& out);

}  // namespace troupe::planners
