#pragma once

#include <optional>

#include "planners/cluster/planning_budget.hpp"
#include "planners/search/job_space/cost_model_times.hpp"
#include "planners/search/space/space_problem.hpp"

namespace troupe::planners {

/// The plan with its stages in their best order and at their best cut (stage_cut.hpp): of the same
/// GPUs, rows and pipelines. For pipelines that are alike, in one datacenter, with one tensor
/// degree; none for others, or if no order and cut is faster by the closed form.
std::optional<space_plan> exactly_cut(const cost_model_times& times, const space_plan& plan,
                                      double iteration_s, planning_budget& budget);

/// The plan with its groups in the order in which their sums cost least between datacenters, and
/// then take least time (group_order.hpp); none: they are in this order.
std::optional<space_plan> in_cheapest_order(const cost_model_times& times, const space_plan& plan);

}  // namespace troupe::planners
