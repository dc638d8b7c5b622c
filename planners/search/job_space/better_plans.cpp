#include "planners/search/job_space/better_plans.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

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

bool set_variants::possible() const {
  const auto& p = times_.problem();
  return p.space.free_cut && !p.space.several_datacenters && !p.space.tensor_by_stage &&
         p.goal != space_goal::fastest && !times_.has_speeds();
}

set_climb& set_variants::climb_of(std::uint32_t rows, std::uint32_t datacenter) {
  auto& climb = climbs_[{rows, datacenter}];
  if (climb) return *climb;
  const auto& p = times_.problem();
  set_wish wish{p.goal == space_goal::cheapest, {}, p.max_gpus};
  wish.max_s = p.max_s.value_or(std::numeric_limits<double>::infinity());
  climb = std::make_unique<set_climb>(times_.its_cluster(), times_.idle_of(datacenter),
                                      times_.job_of({rows, {}, {}}), wish, cut_best,
                                      times_.timing().by);
  return *climb;
}

std::vector<space_plan> set_variants::of_one_type(planning_budget& budget) {
  std::vector<space_plan> out;
  const auto& p = times_.problem();
  for (std::uint32_t dc = 0; dc < p.datacenters; ++dc)
    for (const auto rows : p.rows)
      for (const auto& found : climb_of(rows, dc).of_one_type(budget)) {
        const auto& how = found.placed.plan->how;
        const space_group group{how.data_parallel, how.microbatches, {{0, dc}}};
        if (auto plan = times_.like({rows, {0}, {group}}, how.stages))
          out.push_back(std::move(*plan));
      }
  return out;
}

std::vector<space_plan> set_variants::around(const valued_plan& of, planning_budget& budget) {
  std::vector<space_plan> out;
  const auto placed = times_.placed(of.plan);
  if (!placed) return out;
  auto& climb = climb_of(of.plan.rows, of.plan.groups[0].seats[0].datacenter);
  for (const auto& found : climb.around(placed->how, of.score, budget))
    if (auto plan = times_.like(of.plan, found.placed.plan->how.stages))
      out.push_back(std::move(*plan));
  return out;
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
