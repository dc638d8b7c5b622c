#pragma once

#include <cstdint>

#include "messages/job.hpp"
#include "planners/model/stage_memory.hpp"

// What a program holds on a GPU by what its job file declares of it: ZeRO or FSDP, LoRA, activation
// checkpointing, optimizer and precision (docs/planners/memory.md). A job that declares nothing is
// counted by MARP's formula.

namespace troupe::planners {

/// Without headroom. `data` replicas of `tensor` GPUs each. States: Rajbhandari et al. (ZeRO),
/// section 3; activations: Korthikanti et al., equations 1 to 6.
memory_parts program_memory(const job_spec& job, std::uint32_t data, std::uint32_t tensor);

/// What a plan of the job asks of a GPU: the above with the cluster's headroom, or memory_gb as it
/// is. `headroom`: cluster_settings::memory_headroom.
double program_bytes(const job_spec& job, std::uint32_t data, std::uint32_t tensor,
                     double headroom);

/// Parameters that the job trains, of all of its model: fewer under LoRA.
double trained_parameters(const job_spec& job);

/// Forward passes' worth of FLOPs in an iteration's backward: 2; one more where activations are
/// recomputed in full; one less where most weights are frozen (LoRA).
double backward_forwards(const job_spec& job, double plain);

}  // namespace troupe::planners
