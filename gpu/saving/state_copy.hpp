#pragma once

#include <filesystem>

#include "gpu/device/stage_device.hpp"
#include "messages/base/reason.hpp"

namespace troupe::gpu {

/// Writes the stage's file of a checkpoint, as the device's own `save` does, from a copy of all its
/// values (member_device::submit_values). Fails likewise; `malformed` if the copy has other sizes
/// than the stage.
expected<void> save_copy(const std::filesystem::path& directory, const stage_spec& s,
                         const operations::values::result& copy);

}  // namespace troupe::gpu
