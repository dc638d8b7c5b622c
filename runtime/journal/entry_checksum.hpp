#pragma once

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe::runtime {

/// Of an entry with its number: a row in another's place does not pass.
inline std::uint64_t entry_checksum(std::uint64_t sequence, std::span<const std::byte> entry) {
  return XXH3_64bits_withSeed(entry.data(), entry.size(), sequence);
}

}  // namespace troupe::runtime
