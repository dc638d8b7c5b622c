#pragma once

#include <cstdint>
#include <optional>

#include "messages/cluster.hpp"
#include "messages/job.hpp"
#include "messages/reason.hpp"
#include "planners/core/explicit_plan.hpp"
#include "planners/core/idle_index.hpp"
#include "planners/core/planning_budget.hpp"

// The cheapest GPUs that train a job within its time and its budget (Espresso, Algorithm 1;
// docs/planners/espresso.md).

namespace troupe::planners {

/// Nodes of the cost trees, and what became of them.
struct tree_counts {
  std::uint64_t opened = 0;           // popped, and extended or placed
  std::uint64_t placed = 0;           // of which complete: their stages were ordered and cut
  std::uint64_t pruned_boundary = 0;  // trees, by the numbers of pipelines and stages
  std::uint64_t pruned_cost = 0, pruned_time = 0, pruned_capacity = 0;
};

struct provision {
  std::optional<placed_plan> plan;  // none: `why`
  reason why;
  double iteration_s = 0;  // by the closed form
  double total_s = 0, cost = 0;
  tree_counts search;
  bool complete = false;  // every plan was looked at, or is known to cost more
  double bound = 0;       // no plan costs less
  /// By how much a plan could be cheaper, as a share of the cost.
  double gap() const { return cost > 0 ? 1 - bound / cost : 0; }
};

/// The plan of least cost on the idle GPUs that the job may use that breaks none of its limits
/// (bounds.hpp): cost is what all iterations take, times the price of the GPUs.
provision cheapest_plan(const cluster& c, const idle_index& idle, const job_spec& job,
                        planning_budget& budget);

}  // namespace troupe::planners
