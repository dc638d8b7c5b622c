#pragma once

#include <cstdint>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/training.hpp"
#include "planners/cost/cost_constants.hpp"
#include "planners/devices/kernel_time.hpp"
#include "planners/model/stage_memory.hpp"

// Step times of a stage on its GPUs: from a profile if one was measured, else from the cost model
// (kernel_time.hpp; docs/planners/cost_model.md, "Stages").

namespace troupe::planners {

/// The rate at which a node's GPU does the job's work, FLOP/s: the whole model's as profiled, else
/// that of its matrix products (kernel_time.hpp); for device cpu that of a core.
double flops_s(const cluster& c, node_index node, const job_spec& job);
/// The emulated speed of a node for the job: 1 except for jobs on CPUs.
double emulated_speed(const cluster& c, node_index node, const job_spec& job);

/// The device that runs the job's stages in place of a GPU of this type: for device cpu a core,
/// with an assumed speed that measured times replace.
gpu_type device_of(const job_spec& job, const gpu_type& gpu);

/// Step times of a stage with these parts of the model; the last stage does not recompute. Measured
/// times (train.costs) are used if they have as many stages. Transfers are in half precision;
/// between stages of the built-in trainer in single precision. `inside`: the link of GPUs that
/// share a stage; `context`: of those that share sequences. `pipelines`: how many share the update
/// of a program's states (ZeRO).
stage_costs costs_of_stage(const job_spec& job, const gpu_type& gpu,
                           const std::vector<stage_part>& parts, std::uint32_t stage,
                           std::uint32_t rows, const link& inside = {}, std::uint32_t pipelines = 1,
                           const link& context = {});
/// A forward of the layers of this work once more, as far as their backward needs it. `head`: the
/// work has the head, which is not computed again.
double layers_again_s(const job_spec& job, const gpu_type& gpu, gpu_work work, bool head);
/// Divides all times by an emulated speed.
void slow_down(stage_costs& costs, double speed);
/// The same on GPUs of one node, whose CPUs may be emulated as slower.
stage_costs costs_on_node(const cluster& c, node_index node, const job_spec& job,
                          const std::vector<stage_part>& parts, std::uint32_t stage,
                          std::uint32_t rows, std::uint32_t pipelines = 1);

/// Width of the numbers that GPUs send each other, relative to half precision: 2 in single
/// precision, which is the built-in trainer's, and that of the stages that a profile measured.
double transferred_width(const job_spec& job, bool profiled);

/// All-reduce rates inside a node of this type; empty: not measured.
const std::vector<all_reduce_rate>& measured_sums(const job_spec& job, const gpu_type& gpu);

/// Seconds of a ring all-reduce of `bytes` over `members`, each with `bytes_s` of outgoing
/// bandwidth, which `rings` rings share; each of its 2 (members - 1) steps adds `latency_s`.
double ring_s(double bytes, double members, double bytes_s, double latency_s, double rings = 1);

}  // namespace troupe::planners
