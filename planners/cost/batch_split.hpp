#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/model/stage_memory.hpp"
#include "planners/schedule/schedule.hpp"

// How a job's batch is split over pipelines, and what their WAN costs
// (docs/planners/cost_model.md).

namespace troupe::planners {

/// How a job's batch is split: number and size of micro-batches. microbatches 0: it cannot be
/// split. As the job says, by number or by size; otherwise the largest number that divides the
/// batch, up to four per stage.
struct batch_split {
  std::uint32_t microbatches = 0, rows = 0;
};
batch_split split_batch(const job_spec& job, std::uint32_t stages, std::uint32_t pipelines);

/// Micro-batches between their forward and their backward in a stage with `behind` stages after it:
/// under 1F1B (schedule megatron) one for each stage from itself on, else as many as the job
/// allows.
std::uint32_t in_flight(const job_spec& job, const batch_split& split, std::uint32_t behind);

/// The load of such a stage, on a GPU with `max_bytes`.
stage_load load_of(const job_spec& job, const batch_split& split, std::uint32_t behind,
                   double max_bytes = std::numeric_limits<double>::infinity());
/// What the guests beside its stages may use of each GPU, if it lends their bubbles.
double guest_bytes(const job_spec& job);
/// Memory per GPU of each stage, with `headroom` and the guest's added.
std::vector<double> bytes_by_stage(const job_spec& job, const batch_split& split,
                                   const std::vector<stage_part>& parts, double headroom);

/// The link between two datacenters over that many connections of one pair of nodes; 0: as many as
/// increase the rate. If the cluster has no such link, the cost model's default.
link link_between(const cluster& c, std::uint32_t a, std::uint32_t b, std::uint32_t wished);
/// The number of these connections.
std::uint32_t connections_between(const cluster& c, std::uint32_t a, std::uint32_t b,
                                  std::uint32_t wished);

/// The ratio C of the times of a WAN transfer and a forward.
double communication_to_compute(const pipeline_costs& costs);
/// Pipelines of a DP-cell: C, rounded up, and at most as many as there are; or a few more, if the
/// remaining pipelines would form a smaller cell with too little of the WAN.
std::uint32_t cell_of(const pipeline_costs& costs, std::uint32_t pipelines);

/// The costs of a slot job.
pipeline_costs costs_in_slots(const job_spec& job);

}  // namespace troupe::planners
