#pragma once

#include <cstdint>

#include "messages/cluster.hpp"
#include "messages/job.hpp"
#include "messages/training.hpp"
#include "planners/pipeline_layout.hpp"
#include "planners/pipeline_schedule.hpp"

// What the stages of a job's pipelines cost: the bridge from the cost model (docs/planners/
// cost_model.md) to schedules. A job with `slots` says so itself.

namespace troupe::planners {

/// How the batch goes through pipelines: `rows` sequences a micro-batch. microbatches 0: the batch
/// cannot be divided so. As the job says, by number or by rows; else the most, up
/// to four a stage, that divide it.
struct batch_split {
  std::uint32_t microbatches = 0, rows = 0;
};
batch_split split_batch(const job_spec& job, std::uint32_t stages, std::uint32_t pipelines);

/// What goes through a stage of the job's when the batch goes so, on a GPU of so many bytes.
stage_load load_of(const job_spec& job, const batch_split& split, double most_bytes);

/// What the job's stages run on where the cluster says `gpu`: for device cpu one core, whose speed
/// is a guess that measured times replace.
gpu_type device_of(const job_spec& job, const gpu_type& gpu);

/// Of one stage of a pipeline that has these parts of the job's model; the last one recomputes
/// nothing. What was measured (train.costs), if it is of as many stages. Half precision travels;
/// between stages that really train, single. `inside`: over what GPUs that share a stage sum.
stage_costs costs_of_stage(const job_spec& job, const gpu_type& gpu,
                           const std::vector<stage_part>& parts, std::uint32_t stage,
                           std::uint32_t rows, const link& inside = {});

/// Between two datacentres over so many connections of one pair of nodes; 0: as many as help. Where
/// the cluster names no link, the cost model's.
link wan_between(const cluster& c, std::uint32_t a, std::uint32_t b, std::uint32_t wished);
/// How many connections those are.
std::uint32_t connections_between(const cluster& c, std::uint32_t a, std::uint32_t b,
                                  std::uint32_t wished);

/// The ratio C of what a WAN transfer and what a forward take.
double communication_to_compute(const pipeline_costs& costs);
/// Pipelines of a DP-cell: C, rounded up, and at most as many as there are; or a few more, so that
/// what is left over is no smaller cell, which would have too few shares of the WAN.
std::uint32_t cell_of(const pipeline_costs& costs, std::uint32_t pipelines);

/// Those of a pipeline study, which must be one.
pipeline_costs costs_in_slots(const job_spec& job);
/// The costs of a layout's slowest stage and slowest hop.
pipeline_costs costs_of(const cluster& c, const job_spec& job, const pipeline_layout& layout);
/// What it takes a layout's stages, by stage, to sum their gradients with their peers', and a tied
/// embedding's with the other stage that has it: from the last backward to where the update can
/// begin, without what handing them out takes.
std::vector<double> exchanges_of(const cluster& c, const job_spec& job,
                                 const pipeline_layout& layout);

/// A layout as schedule_pipeline wants it, without tails.
pipeline_shape shape_of(const cluster& c, const job_spec& job, const pipeline_layout& layout);

}  // namespace troupe::planners
