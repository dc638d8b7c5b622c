#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "messages/cluster.hpp"
#include "messages/job.hpp"
#include "planners/model/stage_memory.hpp"
#include "planners/pipeline/schedule.hpp"

// How a job's batch goes through pipelines, and what their WAN costs (docs/planners/cost_model.md).

namespace troupe::planners {

/// How the batch goes through pipelines: `rows` sequences a micro-batch. microbatches 0: the batch
/// cannot be divided so. As the job says, by number or by rows; else the most, up
/// to four a stage, that divide it.
struct batch_split {
  std::uint32_t microbatches = 0, rows = 0;
};
batch_split split_batch(const job_spec& job, std::uint32_t stages, std::uint32_t pipelines);

/// Micro-batches that a stage has between their forward and their backward at once, with `behind`
/// stages after it: under 1F1B (schedule megatron) one for each stage from itself on, else as many
/// as the job allows.
std::uint32_t in_flight(const job_spec& job, const batch_split& split, std::uint32_t behind);

/// What goes through such a stage when the batch goes so, on a GPU of so many bytes.
stage_load load_of(const job_spec& job, const batch_split& split, std::uint32_t behind,
                   double max_bytes = std::numeric_limits<double>::infinity());
/// The bytes of a GPU of each stage, with `headroom` more than is counted.
std::vector<double> bytes_by_stage(const job_spec& job, const batch_split& split,
                                   const std::vector<stage_part>& parts, double headroom);

/// Between two datacenters over so many connections of one pair of nodes; 0: as many as help. Where
/// the cluster names no link, the cost model's.
link link_between(const cluster& c, std::uint32_t a, std::uint32_t b, std::uint32_t wished);
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

}  // namespace troupe::planners
