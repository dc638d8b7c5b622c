#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/model/stage_memory.hpp"
#include "planners/schedule/schedule.hpp"

// How a job's batch is split over pipelines (docs/planners/cost_model.md, "A program"), the load of
// their stages, and the WAN between them: C and DP-cells as in ATLAS, sections 4.3 and 4.4.

namespace troupe::planners {

/// Number of micro-batches of a pipeline and samples in each. As the job specifies, by number or by
/// size; otherwise the largest number that divides a pipeline's samples, up to four per stage.
/// microbatches 0: the batch cannot be split.
struct batch_split {
  std::uint32_t microbatches = 0, rows = 0;
  std::uint32_t pipelines = 0;  // of the plan; 0: as many as the batch has of this split
};
batch_split split_batch(const job_spec& job, std::uint32_t stages, std::uint32_t pipelines);

/// The limit on micro-batches in flight in each of `stages` stages that schedules keep: the job's
/// max_in_flight. Without one, where stages keep all activations and the schedule is open (best),
/// as many as 1F1B has in its first stage, since memory would be for all micro-batches otherwise.
/// None: no limit.
std::optional<std::uint32_t> flight_limit(const job_spec& job, std::uint32_t stages);
/// Whether the job's schedule can keep it: gpipe and megatron have orders of their own.
bool keeps_flight_limit(const job_spec& job, std::uint32_t microbatches, std::uint32_t stages);

/// Micro-batches in flight, between their forward and backward, in a stage of `stages` with
/// `behind` stages behind it: under 1F1B (schedule megatron) one for each stage from itself on,
/// else as many as the limit allows. 0 stages: it is the first one.
std::uint32_t in_flight(const job_spec& job, const batch_split& split, std::uint32_t behind,
                        std::uint32_t stages = 0);

/// The load of such a stage for the memory model, on a GPU with `max_bytes`.
stage_load load_of(const job_spec& job, const batch_split& split, std::uint32_t behind,
                   double max_bytes = std::numeric_limits<double>::infinity(),
                   std::uint32_t stages = 0);
/// Memory per GPU, bytes, that the job lends to guests together with its bubbles; 0: it lends none.
double guest_bytes(const job_spec& job);
/// Memory per GPU of each stage, with `headroom` and the guest's added. `gpus`: each stage's type,
/// or one for all, whose profile may have measured it; empty: by the formulas.
std::vector<double> bytes_by_stage(const job_spec& job, const batch_split& split,
                                   const std::vector<stage_part>& parts, double headroom,
                                   const std::vector<const gpu_type*>& gpus = {});

/// The link between two datacenters over `wished` connections of one pair of nodes; 0: as many as
/// increase the rate (ATLAS, section 4.1). If the cluster has no such link, the cost model's
/// default.
link link_between(const cluster& c, std::uint32_t a, std::uint32_t b, std::uint32_t wished);
/// The number of these connections.
std::uint32_t connections_between(const cluster& c, std::uint32_t a, std::uint32_t b,
                                  std::uint32_t wished);

/// ATLAS's C: the time of a WAN transfer over that of a forward.
double communication_to_compute(const pipeline_costs& costs);
/// Pipelines of a DP-cell (ATLAS, section 4.4, rule 1): C, rounded up, at most as many as there
/// are. A few more if the remaining pipelines would otherwise form a smaller cell, short of
/// bandwidth.
std::uint32_t cell_of(const pipeline_costs& costs, std::uint32_t pipelines);

/// The costs of a slot job, in slots.
pipeline_costs costs_in_slots(const job_spec& job);

}  // namespace troupe::planners
