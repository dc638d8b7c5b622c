#pragma once

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe::runtime {

/// The checksum covers an entry and its sequence number, so that swapped rows are detected.
inline std::uint64_t entry_checksum(std::uint64_t sequence, std::span<const std::byte> entry) {
  return XXH3_64bits_withSeed(entry.data(), entry.size(), sequence);
}

}  // namespace troupe::runtime
