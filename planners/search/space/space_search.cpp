#include "planners/search/space/space_search.hpp"

#include <algorithm>

#include "planners/search/space/alike_search.hpp"

namespace troupe::planners {

space_result search_space(const space_problem& p, const space_times& times, std::size_t wanted,
                          planning_budget& budget) {
  space_result out;
  const space_room room{p};
  floor_table floors{p, times};
  best_plans best{p, times, room, std::max<std::size_t>(wanted, 64)};
  alike_search alike{floors, room, best, budget};
  alike.run();
  out.cuts = alike.cuts().size();
  out.plans = best.all();
  if (out.plans.size() > wanted) out.plans.resize(wanted);
  out.valued = best.valued();
  out.complete = !budget.exhausted();
  return out;
}

}  // namespace troupe::planners
