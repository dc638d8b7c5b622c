#pragma once

#include <cstdint>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/cluster/idle_index.hpp"
#include "planners/cluster/planning_budget.hpp"
#include "planners/plans/explicit_plan.hpp"

// Pipelines over GPUs that may differ: which of them, how many, in which order, and where the model
// is cut (docs/planners/plan_search.md).

namespace troupe::planners {

struct plan_search_result {
  std::vector<placed_plan> plans;  // best first by the job's objective, by evaluate(closed)
  std::uint64_t candidates = 0;    // sets of GPUs, by type
  std::uint64_t placed = 0;        // of which so many were cut and placed
  double bound = 0;                // no set that was not placed can have a smaller score
};

/// What plans are compared by, smaller is better: seconds an iteration (fastest), times GPUs
/// (efficient), times the price of an hour (cheapest).
double plan_score(const job_spec& job, const placed_plan& p);

/// The `wanted` best plans on the idle GPUs that the job may use: every number of pipelines and of
/// GPUs that share a stage, every set of stages by type of GPU; for each set the order and cut
/// whose slowest stage takes the least (stage_cut.hpp). Sets are placed in the order of a bound
/// that no plan of theirs undercuts, until none that is left can be among the best. Plans break no
/// quota, slo_s, deadline_s, budget or max_gpus. Refuses, with what would do, if there is none.
expected<plan_search_result> search_plans(const cluster& c, const idle_index& idle,
                                          const job_spec& job, std::size_t wanted,
                                          planning_budget& budget);

}  // namespace troupe::planners
