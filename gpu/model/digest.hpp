#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gpu/device/operation.hpp"

namespace troupe::gpu {

/// XXH3-64 of bytes.
std::uint64_t digest_of(std::span<const std::byte> bytes);

/// That of all weights, own and then tied: operations::digest's result.
operations::digest::result digest_of(const own_and_tied& weights);

}  // namespace troupe::gpu
