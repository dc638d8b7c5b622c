#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "planners/cluster/planning_budget.hpp"
#include "planners/search/job_space/cost_model_times.hpp"
#include "planners/search/set_climb.hpp"
#include "planners/search/space/space_problem.hpp"

namespace troupe::planners {

/// The plan with its stages in their best order and at their best cut (stage_cut.hpp): of the same
/// GPUs, rows and pipelines. For pipelines that are alike, in one datacenter, with one tensor
/// degree; none for others, or if no order and cut is faster by the closed form.
std::optional<space_plan> exactly_cut(const cost_model_times& times, const space_plan& plan,
                                      double iteration_s, planning_budget& budget);

/// For a space with one datacenter and one tensor degree of a plan, and a goal that GPUs have a
/// part in: plans of other sets of stages (set_climb.hpp). Keeps a reference to the times.
class set_variants {
 public:
  explicit set_variants(const cost_model_times& times) : times_{times} {}

  /// Whether there are such plans at all.
  bool possible() const;
  /// Those whose stages are on GPUs of one type.
  std::vector<space_plan> of_one_type(planning_budget& budget);
  /// Those of the plan's own set and of its neighbours that are better, each than the one before.
  std::vector<space_plan> around(const valued_plan& of, planning_budget& budget);

 private:
  set_climb& climb_of(std::uint32_t rows, std::uint32_t datacenter);

  const cost_model_times& times_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::unique_ptr<set_climb>> climbs_;
};

/// The plan with its groups in the order in which their sums cost least between datacenters, and
/// then take least time (group_order.hpp); none: they are in this order.
std::optional<space_plan> in_cheapest_order(const cost_model_times& times, const space_plan& plan);

}  // namespace troupe::planners
