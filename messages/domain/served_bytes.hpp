#pragma once

#include <cstdint>

#include "messages/domain/model.hpp"

namespace troupe {

/// Positions of a page of a served model's cache: sequences hold whole pages. Devices compute a
/// prefill in tiles of as many rows, so that a tile fills a page, and planners cut prompts there.
inline constexpr std::uint32_t cache_page_positions = 64;

/// Bytes of a page's keys and values in one layer, in single precision, per unit of the model's
/// key and value width.
inline constexpr std::uint64_t cache_page_bytes_per_width =
    2 * sizeof(float) * cache_page_positions;

/// Bytes of a page in all layers. At least one head.
inline double cache_page_bytes(const model& m) {
  return static_cast<double>(cache_page_bytes_per_width) * m.layers * kv_width(m);
}

/// Pages that hold that many positions.
constexpr std::uint32_t cache_pages_of(std::uint32_t positions) {
  return positions / cache_page_positions + (positions % cache_page_positions > 0 ? 1 : 0);
}

/// Tokens of the longest prompt that the bubbles of a training are lent for. It bounds the memory
/// that a guest needs beside its stage.
inline constexpr std::uint32_t longest_lent_prompt = 8192;

}  // namespace troupe
