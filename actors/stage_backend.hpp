#pragma once

#include <memory>

#include "actors/stage.hpp"
#include "gpu/stage_device.hpp"
#include "messages/stage.hpp"

namespace troupe::actors {

/// A real device for a stage, and its data.
struct stage_backend {
  std::shared_ptr<gpu::stage_device> device;
  token_feed tokens;  // of the first and the last stage
};

/// Refuses what the device cannot be or do, and data that cannot be read.
expected<stage_backend> make_backend(const stage_setup& s);

}  // namespace troupe::actors
