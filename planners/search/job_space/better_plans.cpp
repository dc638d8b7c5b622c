#include "planners/search/job_space/better_plans.hpp"

#include <algorithm>
#include <cstddef>

#include "messages/base/folds.hpp"
#include "planners/search/group_order.hpp"
#include "planners/search/stage_placer.hpp"

namespace troupe::planners {

namespace {

bool has_one_place(const space_problem& p, const space_plan& plan) {
  const auto& seats = plan.groups.front().seats;
  return plan.groups.size() == 1 && plan.stages() > 1 &&
         std::ranges::all_of(seats, [&](const space_seat& s) {
           return s.datacenter == seats[0].datacenter &&
                  p.classes[s.cls].tensor == p.classes[seats[0].cls].tensor;
         });
}

}  // namespace

std::optional<space_plan> exactly_cut(const cost_model_times& times, const space_plan& plan,
                                      double iteration_s, planning_budget& budget) {
  if (times.has_speeds() || !has_one_place(times.problem(), plan)) return {};
  const auto placed = times.placed(plan);
  if (!placed) return {};
  stage_placer placer{times.its_cluster(), times.idle_of(plan.groups[0].seats[0].datacenter),
                      times.job_of(plan)};
  const auto& how = placed->how;
  const auto& all = placer.divisions();
  const auto same = std::ranges::find_if(all, [&](const division& d) {
    return d.pipelines == how.data_parallel && d.tensor == how.tensor_parallel;
  });
  if (same == all.end()) return {};
  stage_counts counts(same->types.size());
  for (std::size_t t = 0; t < counts.size(); ++t)
    counts[t] = static_cast<std::uint32_t>(
        std::ranges::count(how.stages, std::optional{same->types[t].gpu}, &plan_stage::gpu));
  const auto found =
      placer.place(static_cast<std::size_t>(same - all.begin()), counts, iteration_s);
  budget.spend(placer.units());
  if (!found.plan || !(found.iteration_s < iteration_s)) return {};
  return times.like(plan, found.plan->how.stages);
}

std::optional<space_plan> in_cheapest_order(const cost_model_times& times, const space_plan& plan) {
  if (plan.groups.size() < 2) return {};
  const auto placed = times.placed(plan);
  if (!placed || !placed->how.groups) return {};
  const auto order =
      order_of_groups(times.its_cluster(), *placed->how.groups, times.summed_bytes_of(plan));
  if (std::ranges::is_sorted(order)) return {};
  auto out = plan;
  out.groups = mapped(order, [&](std::size_t g) { return plan.groups[g]; });
  return out;
}

}  // namespace troupe::planners
