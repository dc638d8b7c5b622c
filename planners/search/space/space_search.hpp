#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "planners/cluster/planning_budget.hpp"
#include "planners/search/space/space_problem.hpp"
#include "planners/search/space/space_times.hpp"

// The one search for pipelines (docs/planners/plan_search.md): rows, cut, GPU type and tensor
// degree of each stage, the number of pipelines, their kinds and shares, and the datacenters, as
// far as the problem's space allows them. It knows neither clusters nor cost models.

namespace troupe::planners {

struct space_result {
  std::vector<valued_plan> plans;  // best first; empty: none keeps the limits, or fits
  std::uint64_t cuts = 0;          // with rows, that were looked at
  std::uint64_t valued = 0;        // plans that were valued
  bool exact = false;              // all plans were valued: the first one is the best there is
  bool complete = true;            // the budget was not exhausted
};

/// Plans of the same GPUs as one that was valued, which may be better and which moves do not find;
/// the budget is charged.
using plan_variants =
    std::function<std::vector<space_plan>(const valued_plan& plan, planning_budget& budget)>;

/// The `wanted` best plans. All plans are valued where there are at most `exact_plans`; else the
/// result is as good as the search is, and space_bound.hpp says how far from the best it may be.
/// The same problem, times and budget give the same result. `seeds`: plans to begin with.
space_result search_space(const space_problem& p, const space_times& times, std::size_t wanted,
                          planning_budget& budget, const plan_variants& variants = {},
                          const std::vector<space_plan>& seeds = {});

}  // namespace troupe::planners
