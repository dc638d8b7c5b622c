#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/cluster/idle_index.hpp"
#include "planners/cluster/planning_budget.hpp"
#include "planners/plans/fits.hpp"
#include "planners/search/space/plan_space.hpp"

namespace troupe::planners {

struct found_pipelines {
  std::vector<placed_plan> plans;  // best first by the job's objective
  std::uint64_t cuts = 0;          // with rows, that were looked at
  std::uint64_t valued = 0;        // plans that were valued
  bool exact = false;              // all plans were valued
};

/// The `wanted` best pipelines of a job on the idle GPUs that it may use, in every group of
/// datacenters that it may have together: the search of every policy
/// (docs/planners/plan_search.md). Plans keep quota, slo_s, deadline_s, budget and max_gpus by
/// evaluate(closed); with a budget by the simulated schedule, which may take longer. Fails if there
/// is none: the error names the limit that would have to change. When `budget` is exhausted,
/// returns the best so far.
expected<found_pipelines> find_pipelines(const cluster& c, const idle_index& idle,
                                         const job_spec& job, const plan_space& space,
                                         std::size_t wanted, planning_budget& budget);

}  // namespace troupe::planners
