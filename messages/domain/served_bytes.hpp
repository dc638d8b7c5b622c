#pragma once

#include <cstdint>

#include "messages/domain/model.hpp"

namespace troupe {

/// Positions of a page of a served model's cache: sequences hold whole pages.
inline constexpr std::uint32_t cache_page_positions = 64;

/// Bytes of keys and values of a page in all layers, in single precision. At least one head.
inline double cache_page_bytes(const model& m) {
  return 2.0 * sizeof(float) * m.layers * cache_page_positions * kv_width(m);
}

/// Pages of a sequence of so many positions.
constexpr std::uint32_t cache_pages_of(std::uint32_t positions) {
  return positions / cache_page_positions + (positions % cache_page_positions > 0 ? 1 : 0);
}

}  // namespace troupe
