#include "planners/search/space/space_search.hpp"

#include <algorithm>
#include <utility>

#include "planners/search/space/alike_search.hpp"
#include "planners/search/space/kind_search.hpp"
#include "planners/search/space/small_plans.hpp"

namespace troupe::planners {

namespace {

// The more are kept, the more lines are valued whose floors are better than the worst of them; and
// the more cuts are tried with several kinds.
constexpr std::size_t kept_alike = 16, kept_plans = 64;

space_result finished(space_result out, const best_plans& best, std::size_t wanted,
                      const planning_budget& budget) {
  out.plans = best.all();
  if (out.plans.size() > wanted) out.plans.resize(wanted);
  out.valued = best.valued();
  out.complete = !budget.exhausted();
  return out;
}

}  // namespace

space_result search_space(const space_problem& p, const space_times& times, std::size_t wanted,
                          planning_budget& budget) {
  space_result out;
  const space_room room{p};
  floor_table floors{p, times, room};
  best_plans best{p, times, room,
                  std::max(wanted, p.space.several_kinds ? kept_plans : kept_alike)};
  constexpr std::uint64_t units_each = 200;
  out.exact =
      value_all_plans(p, times, room, std::min(p.exact_plans, budget.left() / units_each), best);
  if (out.exact) {
    budget.spend(units_each * best.valued());
    return finished(std::move(out), best, wanted, budget);
  }
  alike_search alike{floors, room, best, budget};
  alike.run();
  if (p.space.several_kinds && !budget.exhausted()) {
    kind_search kinds{floors, room, best, budget};
    kinds.run(alike);
  }
  out.cuts = alike.cuts().size();
  return finished(std::move(out), best, wanted, budget);
}

}  // namespace troupe::planners
