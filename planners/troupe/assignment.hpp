#pragma once

#include <vector>

#include "messages/domain/cluster.hpp"
#include "planners/cluster/gpu_pools.hpp"
#include "planners/troupe/contender.hpp"

// The number of GPUs of each pool for every job (docs/planners/troupe.md, "The decision", rules 1
// to 4). Nodes are chosen afterwards (rule 5).

namespace troupe::planners {

/// Every job in its order on the GPUs that are worth most to all, if that saves more than it costs
/// to stop and move running jobs; else these keep what they have, or grow. `free`: idle GPUs and
/// those of all contenders; `speeds`: relative_speeds(); `load`: see arriving_load. The result has
/// each contender that runs, and those waiting ones that were considered before the GPUs were gone.
std::vector<assigned> assign(const cluster& c, const std::vector<gpu_pool>& pools,
                             const std::vector<double>& speeds,
                             const std::vector<contender>& contenders, const free_gpus& free,
                             double now_s, double load = 0, const troupe_options& o = {});

}  // namespace troupe::planners
