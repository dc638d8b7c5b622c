#pragma once

#include <cstdint>
#include <vector>

#include "messages/cluster.hpp"
#include "messages/job.hpp"
#include "messages/training.hpp"
#include "planners/model/stage_memory.hpp"

// How long a stage's steps take on the GPUs that it has: from a profile where one was measured,
// else from the cost model (docs/planners/cost_model.md). Nobody else turns FLOPs into seconds.

namespace troupe::planners {

/// What the formulas leave open.
struct cost_constants {
  double backward = 2;        // backward FLOPs, in forwards
  double overlap = 0.5;       // share of the last micro-batch's backward that hides the gradients
  double gradient_bytes = 2;  // a parameter, as it travels
  double wan_gbps = unlisted_wan_gbps;
  double wan_latency_us = unlisted_wan_rtt_ms * 1e3 / 2;
};

/// What training reaches on a GPU of this type, FLOP/s.
double flops_s(const gpu_type& gpu);
/// What the job reaches on a node's GPUs: as profiled, else the above; on a CPU, a core's.
double flops_s(const cluster& c, node_index node, const job_spec& job);
/// By how much its node is emulated as a slower one: 1 but for jobs on CPUs.
double emulated_speed(const cluster& c, node_index node, const job_spec& job);

/// What the job's stages run on where the cluster says `gpu`: for device cpu one core, whose speed
/// is a guess that measured times replace.
gpu_type device_of(const job_spec& job, const gpu_type& gpu);

/// Seconds that the whole model's forwards and backwards of `microbatches` times `rows` samples and
/// one update take on one GPU alone, as profiled; 0: this type was not.
double profiled_iteration_s(const job_spec& job, const gpu_type& gpu, double microbatches,
                            double rows);

/// Of one stage of a pipeline that has these parts of the job's model; the last one recomputes
/// nothing. What was measured (train.costs), if it is of as many stages. Half precision travels;
/// between stages that really train, single. `inside`: over what GPUs that share a stage sum.
stage_costs costs_of_stage(const job_spec& job, const gpu_type& gpu,
                           const std::vector<stage_part>& parts, std::uint32_t stage,
                           std::uint32_t rows, const link& inside = {});
/// What an emulated speed makes of them.
void slow_down(stage_costs& costs, double speed);
/// The same on GPUs of one node, whose CPUs may be emulated as slower ones.
stage_costs costs_on_node(const cluster& c, node_index node, const job_spec& job,
                          const std::vector<stage_part>& parts, std::uint32_t stage,
                          std::uint32_t rows);

/// How GPUs of a node of this type sum among themselves; empty: nobody measured it.
const std::vector<all_reduce_rate>& measured_sums(const job_spec& job, const gpu_type& gpu);

/// A ring all-reduce of `bytes` over `members`, of which each sends at `bytes_s`, shared by so many
/// rings; between two steps `latency_s` passes.
double ring_s(double bytes, double members, double bytes_s, double latency_s, double rings = 1);

}  // namespace troupe::planners
