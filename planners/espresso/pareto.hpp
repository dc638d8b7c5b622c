#pragma once

#include <vector>

#include "planners/espresso/cost_tree.hpp"

namespace troupe::planners {

/// Plans of which none is both cheaper and faster than another.
struct pareto_front {
  std::vector<provision> plans;  // the cheapest and slowest first
  bool complete = true;          // the budget of planning sufficed
  reason why;                    // there is no plan at all
};

/// Each is the cheapest that takes at most 1 - `step` of the time of the one before: faster plans
/// within a step of one are left out. The job's own limits on time and cost are not applied.
/// Precondition: 0 < step < 1.
pareto_front cheapest_by_time(const cluster& c, const idle_index& idle, const job_spec& job,
                              planning_budget& budget, const provision_options& options = {},
                              double step = 0.02);

}  // namespace troupe::planners
