#pragma once

#include <cstdint>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/training.hpp"
#include "planners/cost/kernel_time.hpp"
#include "planners/model/stage_memory.hpp"

// Step times of a stage on its GPUs: from a profile if one was measured, else from the cost model
// (kernel_time.hpp).

namespace troupe::planners {

/// The cost model's parameters.
struct cost_constants {
  double backward = 2;   // backward FLOPs, in forwards
  double overlap = 0.5;  // fraction of the last micro-batch's backward that hides the gradients
  double gradient_bytes = 2;  // per transferred parameter
  double wan_gbps = unlisted_wan_gbps;
  double wan_latency_us = unlisted_wan_rtt_ms * 1e3 / 2;
};

/// What the job's matrix products reach on a node's GPUs, FLOP/s: all of the model's work as
/// profiled, else as kernel_time.hpp says; on a CPU, a core's.
double flops_s(const cluster& c, node_index node, const job_spec& job);
/// The emulated speed of its node: 1 except for jobs on CPUs.
double emulated_speed(const cluster& c, node_index node, const job_spec& job);

/// The device of the job's stages where the cluster says `gpu`: for device cpu a core, whose speed
/// is an assumption that measured times replace.
gpu_type device_of(const job_spec& job, const gpu_type& gpu);

/// Seconds of the whole model's forwards and backwards of `microbatches` x `rows` samples and one
/// update on a single GPU, as profiled; 0: not profiled.
double profiled_iteration_s(const job_spec& job, const gpu_type& gpu, double microbatches,
                            double rows);

/// Step times of a stage with these parts of the model; the last stage does not recompute. Measured
/// times (train.costs) are used if they have as many stages. Transfers are in half precision;
/// between stages of the built-in trainer in single precision. `inside`: the link of GPUs that
/// share a stage. `pipelines` share the update of a program's states (ZeRO).
stage_costs costs_of_stage(const job_spec& job, const gpu_type& gpu,
                           const std::vector<stage_part>& parts, std::uint32_t stage,
                           std::uint32_t rows, const link& inside = {},
                           std::uint32_t pipelines = 1);
/// Scales them by an emulated speed.
void slow_down(stage_costs& costs, double speed);
/// The same on GPUs of one node, whose CPUs may be emulated as slower.
stage_costs costs_on_node(const cluster& c, node_index node, const job_spec& job,
                          const std::vector<stage_part>& parts, std::uint32_t stage,
                          std::uint32_t rows, std::uint32_t pipelines = 1);

/// All-reduce rates inside a node of this type; empty: not measured.
const std::vector<all_reduce_rate>& measured_sums(const job_spec& job, const gpu_type& gpu);

/// A ring all-reduce of `bytes` over `members`, each with `bytes_s` of outgoing bandwidth shared by
/// that many rings; each step adds `latency_s`.
double ring_s(double bytes, double members, double bytes_s, double latency_s, double rings = 1);

}  // namespace troupe::planners
