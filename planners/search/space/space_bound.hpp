#pragma once

#include "planners/cluster/planning_budget.hpp"
#include "planners/search/space/space_problem.hpp"
#include "planners/search/space/space_times.hpp"

namespace troupe::planners {

/// A lower bound of the score of every plan of the problem by the floors of its
/// times (docs/planners/plan_search.md, "The bound"). `best`: the score of a plan that is known,
/// which the bound never exceeds; infinite: none is. The longer it may take the nearer it is, and
/// it holds whenever it ends.
double score_bound(const space_problem& p, const space_times& times, double best,
                   planning_budget& budget);

}  // namespace troupe::planners
