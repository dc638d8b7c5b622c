#pragma once

#include <cstdint>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"
#include "planners/cost/run_cost.hpp"
#include "planners/cost/stage_time.hpp"

// The time of an iteration of a program, of which only the model and the split are known
// (docs/planners/cost_model.md, "A program").

namespace troupe::planners {

/// For a plan without stages, which has pipeline_parallel 1. Mixed types run at the speed of the
/// slowest.
iteration_estimate estimate_iteration(const cluster& c, const job_spec& job, const plan& how,
                                      const allocation& where, const cost_constants& k = {});

/// A type's nodes, largest first, and the tightest packing of a number of GPUs on them. If there
/// are fewer GPUs than that, more nodes of the same kind are assumed.
std::vector<node_index> nodes_of_type(const cluster& c, gpu_index type);
allocation pack(const cluster& c, const std::vector<node_index>& largest_first, std::uint32_t gpus);

}  // namespace troupe::planners
