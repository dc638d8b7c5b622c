#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"

// Gradient accumulation: a replica sums the gradients of several micro-batches before it updates,
// so that fewer samples are in memory at once (docs/planners/marp.md).

namespace troupe::planners {

/// Ascending. Precondition: n > 0.
std::vector<std::uint32_t> divisors(std::uint32_t n);

/// May plans choose how many samples a GPU computes at once? Not where the job says it; and a
/// program does what its user wrote.
bool may_accumulate(const job_spec& job);

/// The fewest micro-batches of equal size with which each of `data` replicas of `tensor` GPUs needs
/// less than `max_bytes` of memory per GPU of these types, and more than `min_bytes`; 0: none.
/// Fewer make larger, and hence faster, products.
std::uint32_t fewest_micro_batches(const cluster& c, const std::vector<gpu_index>& types,
                                   const job_spec& job, std::uint32_t data, std::uint32_t tensor,
                                   double max_bytes, double min_bytes = 0);

/// "; its batch of 64 is the reason: with 2 of a replica's 64 samples at a time (`microbatches:
/// 32`) 8 GPUs would do", for a refusal. `gpus`: of `data` replicas.
std::string fewer_at_once_text(const job_spec& job, std::uint32_t data, std::uint32_t gpus,
                               std::uint32_t microbatches);

}  // namespace troupe::planners
