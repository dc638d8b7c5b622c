#pragma once

#include "messages/cluster.hpp"
#include "messages/job.hpp"
#include "messages/plan.hpp"

// The analytic cost model: docs/planners/cost_model.md. Every estimate that is not measured is from here.

namespace troupe::planners {

/// How long one iteration takes, in parts that a person can check.
struct iteration_estimate {
  double compute_s = 0;         // forward and backward
  double tensor_s = 0;          // tensor-parallel all-reduces
  double data_s = 0;            // the gradients' all-reduce that is not hidden
  double pipeline_s = 0;        // sends between stages, and the bubble
  double iteration_s = 0;       // the sum
  double samples_per_s = 0;
  double cost_per_hour = 0;     // of the GPUs it uses
};

/// Of a plan on the GPUs it was given. Mixed types run at the slowest one's speed.
iteration_estimate estimate_iteration(const cluster& c, const job_spec& job, const plan& how,
                                      const allocation& where);

/// Of a plan on GPUs of one type, packed as tightly as that type's nodes allow: what MARP ranks by.
iteration_estimate estimate_on_type(const cluster& c, const job_spec& job, const plan& how, gpu_index type);

}  // namespace troupe::planners
