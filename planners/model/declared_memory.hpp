#pragma once

#include <cstdint>

#include "messages/job.hpp"
#include "planners/model/stage_memory.hpp"

// Memory of a program on a GPU according to its job file: ZeRO or FSDP, LoRA, activation
// checkpointing, optimizer and precision (docs/planners/memory.md). For a job that declares nothing
// MARP's formula counts.

namespace troupe::planners {

/// Without headroom. `data` replicas of `tensor` GPUs each. States: Rajbhandari et al. (ZeRO),
/// section 3; activations: Korthikanti et al., equations 1 to 6.
memory_parts program_memory(const job_spec& job, std::uint32_t data, std::uint32_t tensor);

/// What a program of unknown memory is planned with: any GPU has that. If it runs out of memory,
/// the headroom that this implies asks for a GPU with more.
inline constexpr double unknown_program_bytes = 1e6;

/// Memory per GPU of a plan of the job: the above with the cluster's headroom, or memory_gb
/// unchanged. `headroom`: cluster_settings::memory_headroom.
double program_bytes(const job_spec& job, std::uint32_t data, std::uint32_t tensor,
                     double headroom);

/// The number of trained parameters: fewer under LoRA.
double trained_parameters(const job_spec& job);

/// FLOPs of an iteration's backward, in forward passes: 2; one more with full recomputation; one
/// less if most weights are frozen (LoRA).
double backward_forwards(const job_spec& job, double plain);

}  // namespace troupe::planners
