#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

// The statistics of the whole project, so that each has one definition.

namespace troupe::statistics {

/// The median; of an even number, the upper of the two. 0 if there are none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The smallest value that at least this fraction does not exceed (nearest rank). 0 if there are
/// none.
inline double quantile(std::vector<double> values, double fraction) {
  if (values.empty()) return 0;
  const auto rank = std::ceil(fraction * static_cast<double>(values.size()));
  const auto last = static_cast<double>(values.size());
  const auto at = static_cast<std::size_t>(std::clamp(rank, 1.0, last)) - 1;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

/// 0 if there are none.
inline double mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace troupe::statistics
