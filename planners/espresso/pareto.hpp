#pragma once

#include <vector>

#include "planners/espresso/cheapest_plan.hpp"

// Cost against time (docs/planners/espresso.md): the trade-off that Espresso's users choose a T_SLO
// from (section III.A; its Figure 8 has such curves).

namespace troupe::planners {

/// Plans of which none is both cheaper and faster than another.
struct pareto_front {
  std::vector<provision> plans;  // the cheapest and slowest first
  bool complete = true;          // the planning budget sufficed
  reason why;                    // if there is no plan at all
};

/// The front in steps of time: each plan is the cheapest that takes at most 1 - `step` of the time
/// of the one before. The job's own limits on time and cost are not applied. O(log(slowest /
/// fastest) / step) searches. Precondition: 0 < step < 1.
pareto_front cheapest_by_time(const cluster& c, const idle_index& idle, const job_spec& job,
                              planning_budget& budget, const provision_options& options = {},
                              double step = 0.02);

}  // namespace troupe::planners
