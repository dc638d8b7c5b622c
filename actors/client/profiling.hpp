#pragma once

#include "gpu/profiling/profile.hpp"

namespace troupe::actors {

using gpu::profile_wish;

/// Why the CUDA device cannot be used here, or the free memory of its first GPU in bytes.
expected<std::uint64_t> free_gpu_memory();

/// What a node's devices take, for estimates: gpu::measure_device.
expected<device_profile> measure_profile(const profile_wish& w);

}  // namespace troupe::actors
