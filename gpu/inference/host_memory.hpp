#pragma once

#include <cstdint>
#include <string_view>

#include "gpu/inference/inference_model.hpp"
#include "messages/base/reason.hpp"

namespace troupe::gpu {

/// Bytes that this process may have at most: the host's memory, or less by the limit of its control
/// group or by its own (ulimit -v).
std::uint64_t host_memory_bytes();

/// Bytes of a model's weights on the CPU: four for each value, and a tied head twice.
std::uint64_t weight_bytes(const inference_model& m);

/// Bytes of a cache in all layers.
std::uint64_t cache_bytes(const inference_model& m, std::uint32_t pages);

/// Bytes of the scores of these threads' attention, at most, in sequences of as many positions as
/// the model and a cache of this size hold: a tile's for each position that it sees.
std::uint64_t attention_bytes(const inference_model& m, std::uint32_t pages, std::uint32_t threads);

/// Pages that fit beside the weights with room to spare: half of what the weights, adapters of
/// `adapter_bytes` and the threads' attention leave of `memory_bytes`; at least one.
std::uint32_t affordable_pages(const inference_model& m, std::uint32_t threads,
                               std::uint64_t memory_bytes, std::uint64_t adapter_bytes = 0);

/// Refuses a cache that `memory_bytes` do not hold beside the weights, adapters of `adapter_bytes`
/// and the threads' attention. `option`: what sets its size.
expected<void> check_cache(const inference_model& m, std::uint32_t pages, std::uint32_t threads,
                           std::uint64_t memory_bytes, std::string_view option,
                           std::uint64_t adapter_bytes = 0);

}  // namespace troupe::gpu
