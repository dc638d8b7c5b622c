#pragma once

#include <cstdint>

namespace troupe::gpu::python {

inline constexpr std::uint32_t max_region = 255;
inline constexpr std::uint64_t max_buffer = ((std::uint64_t{1} << 28) - 1) * 64;

/// Where bytes are in the memory that a node shares with a worker.
struct buffer_place {
  std::uint32_t region = 0;             // the number of the memory
  std::uint64_t offset = 0, bytes = 0;  // multiples of 64

  bool operator==(const buffer_place&) const = default;
};

}  // namespace troupe::gpu::python
