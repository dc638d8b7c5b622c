#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "gpu/device/stage_device.hpp"

namespace troupe::gpu {

/// Creates a stage on this host's GPUs with these numbers, as make_shared_cuda_device does.
using cuda_device_maker = std::function<expected<std::unique_ptr<stage_device>>(
    const stage_spec& s, const std::vector<int>& indices)>;

}  // namespace troupe::gpu
