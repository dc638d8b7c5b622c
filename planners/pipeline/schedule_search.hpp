#pragma once

#include <cstdint>

#include "planners/pipeline/schedule.hpp"

namespace troupe::planners {

/// A shorter schedule than `from`, if bounded local search finds one, else `from` itself. It swaps
/// neighbours on the critical path: a forward and a backward of a stage, or two transfers that take
/// turns. Memory limit and rule 4 are kept; rule 3 (a transfer begins when its task ends) is not
/// asked for. No transfer waits for one that has not come, as at a gateway's door: who carries out
/// the orders comes to the same times. `steps`: most tasks that are timed in all; the same steps
/// give the same answer. Of several DP-cells one is searched and copied.
pipeline_schedule improve(pipeline_schedule from, std::uint64_t steps);

}  // namespace troupe::planners
