#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "messages/base/random.hpp"
#include "messages/wire/frame.hpp"

namespace troupe::bench {

/// Numbers of 32 bits below `words`, the same for the same seed.
inline payload random_tokens(std::uint64_t count, std::uint64_t words, std::uint64_t seed) {
  random_source random{seed};
  std::vector<std::byte> bytes(4 * count);
  for (std::size_t i = 0; i < bytes.size(); i += 4) {
    const auto token = static_cast<std::uint32_t>(random.below(words));
    std::memcpy(bytes.data() + i, &token, 4);
  }
  return payload{std::move(bytes)};
}

}  // namespace troupe::bench
