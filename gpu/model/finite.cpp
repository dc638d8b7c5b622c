#include "gpu/model/finite.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>

namespace troupe::gpu {

namespace {

constexpr std::uint32_t exponent_bits = 0x7f80'0000;

// By its bits, since the compiler may assume finite values where fast maths is switched on.
bool is_finite(float value) {
  return (std::bit_cast<std::uint32_t>(value) & exponent_bits) != exponent_bits;
}

/// Without a branch for each value, so that it is as fast as the memory.
bool all_finite(std::span<const float> values) {
  std::uint32_t wrong = 0;
  for (const float v : values) wrong |= std::uint32_t{!is_finite(v)};
  return wrong == 0;
}

}  // namespace

/// Blocks are checked without branches; only a block with a wrong value is searched for its place.
std::optional<std::size_t> first_not_finite(std::span<const float> values) {
  constexpr std::size_t block = 4096;
  for (std::size_t begin = 0; begin < values.size(); begin += block) {
    const auto part = values.subspan(begin, std::min(block, values.size() - begin));
    if (all_finite(part)) continue;
    return begin +
           static_cast<std::size_t>(std::ranges::find_if_not(part, is_finite) - part.begin());
  }
  return {};
}

std::string not_finite(std::span<const float> values, std::size_t before) {
  const auto at = first_not_finite(values);
  if (!at) return {};
  return fmt::format("found {} at value {}, expected finite numbers", values[*at], before + *at);
}

}  // namespace troupe::gpu
