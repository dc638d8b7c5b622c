#pragma once

#include <cstddef>
#include <span>

namespace troupe::gpu {

/// Bytes [begin, end) of a text.
struct text_range {
  std::size_t begin = 0, end = 0;
};

/// The first of the sorted, disjoint ranges that [begin, end) overlaps; null: none.
const text_range* overlapped(std::span<const text_range> ranges, text_range one);

}  // namespace troupe::gpu
