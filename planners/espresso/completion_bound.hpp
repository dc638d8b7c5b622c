#pragma once

#include "planners/search/stage_placer.hpp"

// The bound that orders and prunes the nodes of the cost trees (docs/planners/espresso.md, "Cost
// trees"). It takes the place of the paper's equations 4 to 7, whose equation 5 is no lower bound
// on mixed GPUs, for cost and time pruning (section III.B, methods 2 and 3).

namespace troupe::planners {

/// Lower bounds over all completions of a node: of an iteration, and of its cost.
struct completion_bound {
  double seconds = 0;              // of an iteration
  double seconds_times_price = 0;  // seconds of an iteration, times the price of an hour
};

/// `counts`: the stages of the first `decided` types of the division; `missing` more are of later
/// types. Precondition: those have enough.
///
/// The time is that of the decided stages with the fastest of the open ones. The cost is the
/// minimum, over all iteration times T, of T times the least price of a completion that can be as
/// fast. Only times up to `max_s` count: if no completion is that fast, the cost is infinite. From
/// `enough` on (seconds times price) the cost need not be exact, since the node is pruned anyway.
completion_bound min_completion(const division& d, const iteration_bound& bound,
                                const stage_counts& counts, std::size_t decided,
                                std::uint32_t missing, double max_s, double enough);

}  // namespace troupe::planners
