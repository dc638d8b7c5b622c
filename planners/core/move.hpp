#pragma once

#include <string>
#include <vector>

#include "messages/cluster.hpp"
#include "messages/job.hpp"
#include "messages/plan.hpp"
#include "messages/reason.hpp"
#include "planners/core/idle_index.hpp"
#include "planners/core/snapshot.hpp"
#include "planners/pipeline/placement.hpp"

namespace troupe::planners {

/// The shape and place that somebody wants a running training to have. What is 0 or empty stays.
struct move_wish {
  std::uint32_t stages = 0, data_parallel = 0, tensor_parallel = 0;
  std::string gpu_type{};
  std::vector<std::string> nodes{};  // on these and no others
};

/// Where a running training goes: on GPUs that are idle or its own. With as many rows a micro-batch
/// as before, if the batch can be divided so, so that what it learns does not change by more than
/// the order of its sums. Refuses what does not fit, what needs more than the job may have, and
/// what the job has already.
expected<pipeline_placement> plan_move(const cluster& c, const idle_index& idle,
                                       const job_view& job, const move_wish& wish);

/// The job as it is to be planned again after an attempt with so many rows a micro-batch (0: there
/// was none): with the same rows, unless it says itself.
job_spec with_rows(job_spec job, std::uint32_t rows);

}  // namespace troupe::planners
