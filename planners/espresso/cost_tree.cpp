#include "planners/espresso/cost_tree.hpp"

#include <utility>

#include "planners/pipeline/plan_search.hpp"

namespace troupe::planners {

provision cheapest_plan(const cluster& c, const idle_index& idle, const job_spec& job,
                        planning_budget& budget) {
  auto cheapest = job;
  cheapest.objective = "cheapest";
  provision out;
  auto found = search_plans(c, idle, cheapest, 1, budget);
  if (!found) {
    out.why = found.error();
    return out;
  }
  auto& p = out.plan.emplace(std::move(found->plans.front()));
  const double hours = static_cast<double>(job.iterations) / 3600;
  out.iteration_s = job.global_batch / p.how.samples_per_s;
  out.total_s = out.iteration_s * static_cast<double>(job.iterations);
  out.cost = out.total_s / 3600 * p.how.cost_per_hour;
  out.search.opened = out.search.placed = found->placed;
  out.search.pruned_cost = found->candidates - found->placed;
  out.complete = !budget.exhausted();
  out.bound = found->bound * hours;
  if (out.complete || out.bound > out.cost) out.bound = out.cost;
  return out;
}

}  // namespace troupe::planners
