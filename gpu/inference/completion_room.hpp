#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "messages/base/reason.hpp"
#include "messages/domain/completion.hpp"

namespace troupe::gpu {

/// A device's room for completions of a model.
struct completion_room {
  std::string model;            // its name
  std::uint32_t positions = 0;  // of a prompt and its completion
  std::uint32_t vocabulary = 0;
  std::uint32_t pages = 0;  // of the whole cache
};

/// Refuses (invalid) a request that the device can never complete, or whose numbers are out of
/// range. `tokens`: of the prompt, then of the completion as far as known; none in a simulation.
expected<void> check(const completion_request& r, std::span<const std::uint32_t> tokens,
                     const completion_room& room);
/// Refuses `fresh` sequences that with the present ones exceed `max` (insufficient), or alone
/// (invalid).
expected<void> check_sequences(std::size_t present, std::size_t fresh, std::size_t max);

}  // namespace troupe::gpu
