#include "planners/search/job_space/job_search.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "messages/base/refuse.hpp"
#include "planners/cluster/datacenter_groups.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/search/job_space/better_plans.hpp"
#include "planners/search/space/space_bound.hpp"
#include "planners/search/space/space_search.hpp"

namespace troupe::planners {

namespace {

/// The datacenters that pipelines may have together; empty: all.
std::vector<datacenter_group> groups_of_search(const cluster& c, const job_spec& job,
                                               const job_places& places) {
  if (c.datacenters.size() < 2 || why_one_datacenter(job).empty()) return places.groups();
  std::vector<datacenter_group> alone;
  for (std::uint32_t d = 0; d < c.datacenters.size(); ++d) alone.push_back(group_of(c, {d}));
  return alone;
}

}  // namespace

expected<job_search> job_search::of(const cluster& c, const idle_index& idle, const job_spec& job,
                                    const job_places& places, const plan_space& space,
                                    const plan_timing& timing) {
  job_search out;
  std::optional<reason> why;
  const auto add = [&](const idle_index& here) {
    std::optional<idle_index> allowed;
    auto at = std::make_unique<room>(room{allowed_idle(c, here, job, allowed), nullptr});
    auto times = cost_model_times::of(c, at->idle, job, space, timing);
    if (times)
      at->times = std::move(*times), out.rooms_.push_back(std::move(at));
    else if (!why)
      why = times.error();
  };
  const auto groups = groups_of_search(c, job, places);
  if (groups.empty()) add(idle);
  for (const auto& group : groups) add(idle_in(c, idle, group));
  if (out.rooms_.empty()) return refuse(why.value());
  return out;
}

job_search::result job_search::search(std::size_t wanted, planning_budget& budget) const {
  result all;
  for (const auto& r : rooms_) {
    set_variants sets{*r->times};
    std::vector<space_plan> seeds;
    if (sets.possible()) {
      auto own = budget.part(budget.left() / 5);
      seeds = sets.of_one_type(own);
      budget.charge(own);
    }
    const auto variants = [&](const valued_plan& v, planning_budget& own) {
      if (sets.possible()) return sets.around(v, own);
      std::vector<space_plan> out;
      if (r->times->problem().space.free_cut)
        if (auto p = exactly_cut(*r->times, v.plan, v.value.seconds, own))
          out.push_back(std::move(*p));
      if (auto p = in_cheapest_order(*r->times, v.plan)) out.push_back(std::move(*p));
      return out;
    };
    const auto found =
        search_space(r->times->problem(), *r->times, wanted, budget, variants, seeds);
    for (const auto& p : found.plans) all.plans.push_back({r->times.get(), p});
    all.cuts += found.cuts, all.valued += found.valued;
    all.exact = all.exact && found.exact;
    all.complete = all.complete && found.complete;
  }
  std::ranges::stable_sort(all.plans, {}, [](const found_plan& p) { return p.found.score; });
  if (all.plans.size() > wanted) all.plans.resize(wanted);
  return all;
}

double job_search::bound(double best, planning_budget& budget) const {
  double bound = best;
  for (const auto& r : rooms_) {
    planning_budget own{budget.left() / rooms_.size()};
    bound = std::min(bound, score_bound(r->times->problem(), *r->times, best, own));
  }
  return bound;
}

}  // namespace troupe::planners
