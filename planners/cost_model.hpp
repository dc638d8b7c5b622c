#pragma once

#include "messages/cluster.hpp"
#include "messages/job.hpp"
#include "messages/plan.hpp"

// The analytic cost model: docs/planners/cost_model.md. Every estimate that is not measured is from
// here.

namespace troupe::planners {

/// How long one iteration takes, in parts that a person can check.
struct iteration_estimate {
  double compute_s = 0;    // forward and backward
  double tensor_s = 0;     // tensor-parallel all-reduces
  double data_s = 0;       // the gradients' all-reduce that is not hidden
  double pipeline_s = 0;   // sends between stages, and the bubble
  double iteration_s = 0;  // the sum
  double samples_per_s = 0;
  double cost_per_hour = 0;  // of the GPUs it uses
};

/// What the formulas leave open.
struct cost_constants {
  double backward = 2;        // backward FLOPs, in forwards
  double overlap = 0.5;       // share of the last micro-batch's backward that hides the gradients
  double gradient_bytes = 2;  // a parameter, as it travels
  double microbatches_a_stage = 4;  // where a pipelined job does not say
  double wan_gbps = unlisted_wan_gbps;
  double wan_latency_us = unlisted_wan_rtt_ms * 1e3 / 2;
};

/// Of a plan on the GPUs it was given. Mixed types run at the slowest one's speed.
iteration_estimate estimate_iteration(const cluster& c, const job_spec& job, const plan& how,
                                      const allocation& where, const cost_constants& k = {});

/// Of a plan on GPUs of one type, packed as tightly as that type's nodes allow: what MARP ranks by.
/// A type with fewer GPUs than the plan is taken to have more nodes of the same kind.
iteration_estimate estimate_on_type(const cluster& c, const job_spec& job, const plan& how,
                                    gpu_index type, const cost_constants& k = {});

/// A type's nodes, the largest first, and the tightest packing of so many GPUs on them (above).
std::vector<node_index> nodes_of_type(const cluster& c, gpu_index type);
allocation pack(const cluster& c, const std::vector<node_index>& largest_first, std::uint32_t gpus);

}  // namespace troupe::planners
