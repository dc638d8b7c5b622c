#pragma once

#include <cstdint>

#include "messages/domain/job.hpp"
#include "planners/model/stage_memory.hpp"

// Memory of a program on a GPU according to its job file: ZeRO or FSDP, LoRA, activation
// checkpointing, optimizer and precision (docs/planners/memory.md). For a job that declares nothing
// MARP's formula counts.

namespace troupe::planners {

/// The micro-batches of the fullest of `data` replicas, which has ceil(B / data) samples, and the
/// samples in each: their mean, where the last one is smaller.
struct replica_batch {
  double microbatches = 1, rows = 1;
};
/// As a plan says (`planned`, 0: it does not), or else the job: by its micro_batch, or its
/// microbatches; otherwise all samples at once.
replica_batch batch_of_replica(const job_spec& job, std::uint32_t data, std::uint32_t planned = 0);
/// Does the job say how many samples a GPU computes at once?
bool fixes_micro_batch(const job_spec& job);

/// Without headroom. `data` replicas of `tensor` GPUs each, with `planned` micro-batches (0: the
/// job's). States: Rajbhandari et al. (ZeRO), section 3; activations: Korthikanti et al., equations
/// 1 to 6.
memory_parts program_memory(const job_spec& job, std::uint32_t data, std::uint32_t tensor,
                            std::uint32_t planned = 0);

/// The same of a GPU's stage, one micro-batch of `rows` samples at a time: states, ends, buffers
/// and context. Activations: job_memory.hpp. Precondition: the job declares its memory.
memory_parts program_stage_memory(const job_spec& job, const stage_part& p, const stage_load& load);

/// Bytes of states that a GPU has at least for each of its parameters, however many replicas share
/// them.
double unshared_bytes_per_parameter(const job_spec& job);

/// Bytes that a forward keeps for its backward in half precision: a sublayer's of each number of
/// the residual stream, in parts that each GPU has whole; and of each number of attention's matrix.
struct kept_by_number {
  double stream = 5, matrix = 5;
};
kept_by_number kept_by_kernels(const job_spec& job);

/// The memory that a program of unknown memory is planned with: any GPU has that. If it runs out of
/// memory, the headroom that this implies asks for a GPU with more.
inline constexpr double unknown_program_bytes = 1e6;

/// Memory per GPU of a plan of the job: the above with the cluster's headroom, or memory_gb
/// unchanged. `headroom`: cluster_settings::memory_headroom.
double program_bytes(const job_spec& job, std::uint32_t data, std::uint32_t tensor, double headroom,
                     std::uint32_t planned = 0);

/// The number of trained parameters: fewer under LoRA.
double trained_parameters(const job_spec& job);

/// FLOPs of an iteration's backward, in forward passes: 2; one less if most weights are frozen
/// (LoRA).
double backward_of_weights(const job_spec& job, double plain);
/// The same with one more if all activations are computed again.
double backward_forwards(const job_spec& job, double plain);

}  // namespace troupe::planners
