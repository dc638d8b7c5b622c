#pragma once

#include <memory>
#include <vector>

#include "planners/policy/policy.hpp"

// Decoders of served models (`serve:` of a job; docs/serving.md) under every policy. A decoder
// takes one GPU until it is cancelled.

namespace troupe::planners {

/// The plan of a decoder: one GPU with more memory than decoder_memory_of gives and the cluster's
/// headroom adds. Fails, with the figures, if no GPU that the job may use has it.
expected<std::vector<plan>> decoder_plans(const cluster& c, const job_spec& job);

/// `inner` with decoders. Waiting ones are placed before `inner` decides, the larger priority
/// first: on the smallest sufficient memory, then on the node with the fewest idle GPUs, then on
/// the first name. `inner` sees no serve job; their GPUs are not idle. Without serve jobs its
/// decisions are `inner`'s own, on the same snapshot. Precondition: `inner` is not null.
std::shared_ptr<const policy> with_serving(std::shared_ptr<const policy> inner);

}  // namespace troupe::planners
