#pragma once

#include <cstdint>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/model/stage_memory.hpp"

// Memory as profiles measured it: the peaks of a stage's parts replace the formulas of
// planners/model, as their times replace the cost model (docs/profiles.md). A job's memory_gb comes
// before both, and the built-in trainer's memory on GPUs is known to the byte.

namespace troupe::planners {

/// Memory of a stage on one of its GPUs of this type, bytes, with a cluster's headroom: as measured
/// if the type's profile (or the job's) has the peaks of all of its parts, else stage_bytes().
double stage_bytes_on(const gpu_type& gpu, const job_spec& job, const stage_part& p,
                      const stage_load& load, double headroom);

/// The same of a plan without stages, on GPUs of any of these types: the largest. Without types,
/// program_bytes(). States that replicas share (ZeRO) and adapters (LoRA) are in no profile.
double program_bytes_on(const cluster& c, const std::vector<gpu_index>& types, const job_spec& job,
                        std::uint32_t data, std::uint32_t tensor, std::uint32_t planned = 0);

}  // namespace troupe::planners
