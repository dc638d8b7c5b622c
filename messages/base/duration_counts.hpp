#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "messages/base/fields.hpp"

namespace troupe {

/// A histogram of durations: how many were in each bucket. The first bucket ends at 10 us, and each
/// further one at 1.19 times (2 to the power of 1/4) the end of the one before. Histograms can be
/// added, so that quantiles of many reports are known to 19 %.
struct duration_counts {
  std::vector<std::uint64_t> buckets;  // durations in each, up to the last that is not empty

  static constexpr double first_s = 1e-5, per_octave = 4;
  static constexpr std::size_t max_buckets = 128;  // the last one has everything longer: 12 hours

  static double end_s(std::size_t bucket) {
    return first_s * std::exp2(static_cast<double>(bucket) / per_octave);
  }

  void add(double s) {
    const double octaves = s > first_s ? std::log2(s / first_s) : 0;
    const auto bucket = static_cast<std::size_t>(
        std::min(std::ceil(octaves * per_octave), static_cast<double>(max_buckets - 1)));
    if (buckets.size() <= bucket) buckets.resize(bucket + 1);
    ++buckets[bucket];
  }

  /// Those of another histogram as well. Buckets beyond the last are ignored.
  void add(const duration_counts& o) {
    const auto n = std::min(o.buckets.size(), max_buckets);
    if (buckets.size() < n) buckets.resize(n);
    for (std::size_t i = 0; i < n; ++i) buckets[i] += o.buckets[i];
  }

  /// The end of the bucket with the smallest duration that at least this fraction does not exceed.
  /// 0 if there are none.
  double quantile_s(double fraction) const {
    const auto all = std::accumulate(buckets.begin(), buckets.end(), std::uint64_t{0});
    const double rank = std::max(1.0, std::ceil(fraction * static_cast<double>(all)));
    double seen = 0;
    for (std::size_t i = 0; i < buckets.size(); ++i)
      if ((seen += static_cast<double>(buckets[i])) >= rank) return end_s(i);
    return 0;
  }

  TROUPE_FIELDS(duration_counts, buckets);
};

}  // namespace troupe
