#pragma once

#include <cstdint>
#include <optional>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/cluster/idle_index.hpp"
#include "planners/cluster/planning_budget.hpp"
#include "planners/espresso/provision_baselines.hpp"
#include "planners/plans/explicit_plan.hpp"

// The cheapest GPUs that train a job within its time and its budget (Espresso, Algorithm 1;
// docs/planners/espresso.md).

namespace troupe::planners {

struct provision_options {
  bool pruning = true;      // else every node of every tree is opened, and every set placed
  bool exhaustive = false;  // no trees: every set is listed and placed
  provision_placer placer = provision_placer::exact;
  bool spot = false;  // instances that the provider may take back, where the cluster has such
  /// A plan takes what its schedule takes when it is simulated; else what the closed form says, of
  /// which the search then finds the optimum.
  bool simulate = true;
};

/// Nodes of the cost trees, and what became of them.
struct tree_counts {
  std::uint64_t opened = 0;           // taken from the queue, and extended or placed
  std::uint64_t placed = 0;           // of which complete: their stages were ordered and cut
  std::uint64_t simulated = 0;        // plans whose schedule was simulated
  std::uint64_t pruned_boundary = 0;  // trees, by the numbers of pipelines and stages
  std::uint64_t pruned_cost = 0, pruned_time = 0, pruned_capacity = 0;
  double bound_at_pop = 0;  // of the plan's set, when it was taken from the queue
};

struct provision {
  std::optional<placed_plan> plan;  // none: `why`
  reason why;
  double iteration_s = 0, closed_form_s = 0;
  double total_s = 0, cost = 0;  // by iteration_s
  double interruptions = 0;      // of spot instances, expected; in total_s and cost
  tree_counts search;
  bool complete = false;  // no plan that was not looked at can cost less than `bound`
  double bound = 0;       // no plan costs less
  /// Without a plan: one that was not looked at may exist, at this cost or more.
  std::optional<double> not_examined{};
  /// By how much a plan could be cheaper, as a share of the cost.
  double gap() const { return cost > 0 && bound < cost ? 1 - bound / cost : 0; }
};

/// The plan of least cost that the placer makes on the idle GPUs that the job may use, in one
/// datacentre, that breaks none of its limits (bounds.hpp): cost is what all iterations take, times
/// the price of the GPUs. Where plans are simulated, `exact` takes of each set of GPUs the best of
/// all placers' plans, so that it is never dearer than another. With spot instances, each
/// interruption adds a restart and half of the time between checkpoints (cluster_settings). If
/// there is no plan, says what would do.
provision cheapest_plan(const cluster& c, const idle_index& idle, const job_spec& job,
                        planning_budget& budget, const provision_options& options = {});

}  // namespace troupe::planners
