#include "planners/search/job_space/find_pipelines.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/cost/run_cost.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/places.hpp"
#include "planners/search/job_space/job_search.hpp"

namespace troupe::planners {

namespace {

/// With the figures of its simulated schedule; none: no schedule can be made, or it costs too much.
std::optional<placed_plan> within_its_budget(const cluster& c, const job_spec& job, placed_plan p) {
  const auto e = evaluate(c, job, p.how, p.where, fidelity::simulated);
  if (!e) return {};
  set_figures(p.how, *e);
  if (!within_budget(job, p.how)) return {};
  return p;
}

expected<found_pipelines> search(const cluster& c, const idle_index& idle, const job_spec& job,
                                 const plan_space& space, std::size_t wanted,
                                 planning_budget& budget) {
  const job_places places{c, job, true};
  const auto searched = job_search::of(c, idle, job, places, space);
  if (!searched) return refuse(searched.error());
  const auto found = searched->search(wanted, budget);
  found_pipelines out;
  out.cuts = found.cuts, out.valued = found.valued, out.exact = found.exact;
  for (const auto& [times, v] : found.plans) {
    auto p = times->placed(v.plan);
    TROUPE_INVARIANT(p, "a plan that was valued has GPUs");
    if (job.limits.budget) p = within_its_budget(c, times->job_of(v.plan), std::move(*p));
    if (p) out.plans.push_back(std::move(*p));
  }
  std::ranges::stable_sort(out.plans, {}, [&](const auto& p) { return plan_score(job, p.how); });
  return out;
}

/// Searches once more without limits, for the fastest plan and then for the cheapest one that is
/// fast enough, and names the limit that these break.
reason why_none(const cluster& c, const idle_index& idle, const job_spec& job,
                const plan_space& space, planning_budget& budget) {
  if (budget.exhausted()) return budget.none_found();
  const auto& limits = job.limits;
  if (limits.slo_s || limits.deadline_s || limits.budget) {
    auto free = job;
    free.limits.slo_s = free.limits.deadline_s = free.limits.budget = {};
    free.objective = "fastest";
    std::optional<double> fastest_s;
    for (const bool timed : {false, true}) {
      const auto best = search(c, idle, free, space, 1, budget);
      if (!best || best->plans.empty()) break;
      const auto& how = best->plans.front().how;
      const double run_s =
          job.global_batch / how.samples_per_s * static_cast<double>(job.iterations);
      if (!fastest_s) fastest_s = run_s;
      const double cost = timed ? cost_of_run(job, how) : 0;
      if (auto ok = within_limits(job, *fastest_s, cost); !ok) return ok.error();
      free.limits.slo_s = limits.slo_s, free.limits.deadline_s = limits.deadline_s;
      free.objective = "cheapest";
    }
  }
  return {reason::kind::infeasible,
          fmt::format("no pipeline on the {} idle GPUs has enough memory for '{}'",
                      idle.total_idle(), job.model.name)};
}

}  // namespace

expected<found_pipelines> find_pipelines(const cluster& c, const idle_index& idle,
                                         const job_spec& job, const plan_space& space,
                                         std::size_t wanted, planning_budget& budget) {
  ++searches_made;
  auto found = search(c, idle, job, space, wanted, budget);
  if (found && found->plans.empty()) return refuse(why_none(c, idle, job, space, budget));
  return found;
}

}  // namespace troupe::planners
