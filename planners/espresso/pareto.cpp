#include "planners/espresso/pareto.hpp"

#include <utility>

#include "messages/base/invariant.hpp"

namespace troupe::planners {

// One search per point, since a front over all plans would have to place every set, while a limit
// on time lets each search prune. The first finds the cheapest plan of all, and each next one the
// cheapest below a limit just under the last plan's time. A plan that is not more expensive
// replaces the one before, which is slower.
pareto_front cheapest_by_time(const cluster& c, const idle_index& idle, const job_spec& job,
                              planning_budget& budget, const provision_options& options,
                              double step) {
  TROUPE_INVARIANT(step > 0 && step < 1, "a front has points between its ends");
  auto bounded = job;
  bounded.limits.slo_s = bounded.limits.deadline_s = bounded.limits.budget = {};
  pareto_front front;
  for (;;) {
    auto p = cheapest_plan(c, idle, bounded, budget, options);
    front.complete = front.complete && p.complete;
    if (!p.plan) {
      if (front.plans.empty()) front.why = std::move(p.why);
      return front;
    }
    bounded.limits.slo_s = p.total_s * (1 - step);
    if (!front.plans.empty() && p.cost <= front.plans.back().cost)
      front.plans.back() = std::move(p);  // not more expensive, and faster
    else
      front.plans.push_back(std::move(p));
    if (!front.complete) return front;
  }
}

}  // namespace troupe::planners
