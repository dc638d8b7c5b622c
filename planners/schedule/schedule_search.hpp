#pragma once

#include <cstdint>

#include "planners/schedule/schedule.hpp"

// The bounded search of schedule `best` (docs/planners/pipelines.md, "best").

namespace troupe::planners {

/// Returns a shorter schedule than `from` if bounded local search finds one, else `from`. It swaps
/// neighbors on the critical path: a forward and a backward of a stage, or two transfers on a
/// shared hop. It keeps the memory limit (rule 2) and rule 4 of ATLAS, but not rule 3 (a transfer
/// begins when its task ends). No link is held for a transfer that has not arrived, as at a
/// gateway, so executing the orders gives the same times. `steps`: maximum number of tasks that are
/// timed in total; the result depends on nothing else. If there are several DP-cells, one is
/// searched and copied.
pipeline_schedule local_search(pipeline_schedule from, std::uint64_t steps);

}  // namespace troupe::planners
