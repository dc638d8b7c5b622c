#pragma once

#include <string>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"
#include "planners/cluster/idle_index.hpp"
#include "planners/cluster/snapshot.hpp"
#include "planners/cost/run_cost.hpp"
#include "planners/policy/placement.hpp"

namespace troupe::planners {

// `troupe move`: a user moves a running training (docs/operating.md).

/// The requested shape and place of a running job. Fields that are 0 or empty stay as they are.
struct move_wish {
  std::uint32_t stages = 0, data_parallel = 0, tensor_parallel = 0;  // of a training
  std::string gpu_type{};
  std::vector<std::string> nodes{};  // exactly these
  std::uint32_t gpus = 0;            // of an elastic program
};

/// Where to move a running training: to GPUs that are idle or its own. Keeps the micro-batch size
/// if the batch can be split that way, so that its results change only by the order of summation.
/// The checkpoint's traffic counts for the budget. Fails if nothing fits, if the job's limits are
/// exceeded, or if the job already runs that way.
expected<placed_plan> plan_move(const cluster& c, const idle_index& idle, const job_view& job,
                                const move_wish& wish);

/// Bytes that the stages of a moved training read of its checkpoint from other datacenters: each
/// stage reads its part of the model, which the first pipeline's stages have written where they
/// were.
datacenter_traffic traffic_of_move(const cluster& c, const job_spec& job, const placed_plan& from,
                                   const placed_plan& to);

/// Where to move a running elastic program. With fewer GPUs than it has it stays on its own, where
/// these can serve it; else it gets the best of its plans with that number of GPUs by the job's
/// objective that idle GPUs, or its own, can serve, as near to what it has as possible. Fails as
/// plan_move does.
expected<placed_plan> plan_program_move(const cluster& c, const idle_index& idle,
                                        const job_view& job, const move_wish& wish);

}  // namespace troupe::planners
