#include "text/base/text_range.hpp"

#include <algorithm>

namespace troupe::gpu {

/// Binary search, since a prompt may have a range per message and is searched once per name found.
const text_range* overlapped(std::span<const text_range> ranges, text_range one) {
  const auto first = std::partition_point(ranges.begin(), ranges.end(),
                                          [&](const text_range& r) { return r.end <= one.begin; });
  return first != ranges.end() && first->begin < one.end ? &*first : nullptr;
}

}  // namespace troupe::gpu
