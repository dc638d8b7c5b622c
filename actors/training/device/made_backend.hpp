#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "gpu/device/stage_device.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// Returns the tokens of a micro-batch and their targets: a function of its arguments alone, as
/// long as the data can be read.
using token_feed = std::function<expected<std::pair<payload, payload>>(std::uint64_t iteration,
                                                                       std::uint32_t microbatch)>;

/// A real device for a stage, and its data.
struct stage_backend {
  std::shared_ptr<gpu::stage_device> device;
  token_feed tokens;  // of the first and the last stage; null: its device has its own
  // The device, if its updates need the squared norm of all stages' gradients; else null.
  std::shared_ptr<gpu::program_device> norms{};
  std::optional<worker_report> worker{};  // of a program, when it is ready
};

}  // namespace troupe::actors
