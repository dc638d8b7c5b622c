#pragma once

#include <cstdint>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/cluster/idle_index.hpp"
#include "planners/cluster/planning_budget.hpp"
#include "planners/plans/fits.hpp"

// Plans over mixed GPUs: which types, how many stages, in which order, and where the model is cut
// (docs/planners/plan_search.md). The paper's search for the cheapest plan (Espresso, section
// III.B) is espresso/cost_tree.hpp; this one serves every other policy.

namespace troupe::planners {

struct plan_search_result {
  std::vector<placed_plan> plans;  // best first by the job's objective, by evaluate(closed)
  std::uint64_t candidates = 0;    // sets of stages by type that passed the bounds
  std::uint64_t placed = 0;        // sets that were ordered, cut and placed
  double bound = 0;                // no set that was not placed has a smaller score
};

/// The score by which plans are ranked, smaller is better, by the job's objective: seconds per
/// iteration (fastest), times GPUs (efficient), or times the price per hour (cheapest).
double plan_score(const job_spec& job, const placed_plan& p);

/// The `wanted` best plans on the idle GPUs that the job may use, over every number of pipelines
/// and of GPUs that share a stage, and every set of stages by GPU type; each set in its best order
/// and cut (stage_cut.hpp). Plans keep quota, slo_s, deadline_s, budget and max_gpus. Fails if
/// there is none: the error names the limit that would have to change. When `budget` is exhausted,
/// returns the best so far; `bound` then limits how far from the optimum they are.
expected<plan_search_result> search_plans(const cluster& c, const idle_index& idle,
                                          const job_spec& job, std::size_t wanted,
                                          planning_budget& budget);

}  // namespace troupe::planners
