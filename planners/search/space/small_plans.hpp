#pragma once

#include <cstdint>

#include "planners/search/space/best_plans.hpp"
#include "planners/search/space/space_problem.hpp"
#include "planners/search/space/space_room.hpp"
#include "planners/search/space/space_times.hpp"

namespace troupe::planners {

/// Values every plan of the problem's space, if they are at most `max`; else nothing, and returns
/// false. Left out are only plans that cannot be better than others that are not: the micro-batches
/// of equal pipelines are divided as evenly as they can be, and the order of groups is one of their
/// routes (a pipeline's datacenters by stage), in each of which lines are in the order of their
/// classes.
bool value_all_plans(const space_problem& p, const space_times& times, const space_room& room,
                     std::uint64_t max, best_plans& best);

/// Orders the groups of each route by their classes, and offers the plan with its routes in every
/// order; of more than `all_of` routes in those that improve it step by step. Returns the best
/// score.
double offer_orders(best_plans& best, const space_plan& plan, std::size_t all_of = 6);

}  // namespace troupe::planners
