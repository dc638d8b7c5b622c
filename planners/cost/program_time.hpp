#pragma once

#include <cstdint>
#include <vector>

#include "messages/cluster.hpp"
#include "messages/job.hpp"
#include "messages/plan.hpp"
#include "planners/cost/stage_time.hpp"

// How long an iteration of a program takes, of which the model and the split are known and no more
// (docs/planners/cost_model.md).

namespace troupe::planners {

/// How long one iteration takes, in parts that a person can check.
struct iteration_estimate {
  double compute_s = 0;    // forward and backward; of pipelines, the slowest stage's
  double tensor_s = 0;     // tensor-parallel all-reduces; of pipelines in compute_s
  double data_s = 0;       // the gradients' all-reduce that is not hidden
  double pipeline_s = 0;   // all else of a pipeline: waits, sends, updates
  double iteration_s = 0;  // the sum
  double samples_per_s = 0;
  double cost_per_hour = 0;  // of the GPUs it uses
};

/// Of a plan without stages, which has one: pipeline_parallel 1. Mixed types run at the slowest
/// one's speed.
iteration_estimate estimate_iteration(const cluster& c, const job_spec& job, const plan& how,
                                      const allocation& where, const cost_constants& k = {});

/// The same on GPUs of one type, packed as tightly as that type's nodes allow: what MARP ranks by.
/// A type with fewer GPUs than the plan is taken to have more nodes of the same kind.
iteration_estimate estimate_on_type(const cluster& c, const job_spec& job, const plan& how,
                                    gpu_index type, const cost_constants& k = {});

/// A type's nodes, the largest first, and the tightest packing of so many GPUs on them (above).
std::vector<node_index> nodes_of_type(const cluster& c, gpu_index type);
allocation pack(const cluster& c, const std::vector<node_index>& largest_first, std::uint32_t gpus);

}  // namespace troupe::planners
