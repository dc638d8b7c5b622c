#pragma once

#include "gpu/profile.hpp"

namespace troupe::actors {

using gpu::profile_wish;

/// What a node's devices take, for estimates: gpu::measure_device.
expected<device_profile> measure_profile(const profile_wish& w);

}  // namespace troupe::actors
