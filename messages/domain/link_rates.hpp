#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "messages/base/fields.hpp"

// Rates of links by the size of a transfer, and by the number of GPUs that all-reduce
// (docs/files.md, "Links"; docs/planners/cost_model.md, "Links").

namespace troupe {

/// A link's rate for transfers of one size.
struct link_rate {
  std::uint64_t bytes = 0;  // of the whole transfer, whatever number of GPUs sends it
  double gbps = 0;

  TROUPE_FIELDS(link_rate, bytes, gbps);
};

/// All-reduces among so many GPUs of a node.
struct group_rate {
  std::uint32_t gpus = 0;
  double gbps = 0;        // the bus rate of large tensors, as nccl-tests count it
  double latency_us = 0;  // see all_reduce_s

  TROUPE_FIELDS(group_rate, gpus, gbps, latency_us);
};

// Bounds of what files and frames may name.
inline constexpr std::size_t max_link_rates = 64;
inline constexpr double max_link_gbps = 1e6;
inline constexpr std::uint64_t max_rate_bytes = std::uint64_t{1} << 50;
inline constexpr std::uint32_t max_group_gpus = 1024;

/// Gbit/s for that many bytes: linear in log2 of the bytes between two points, constant outside.
/// Precondition: are_rates().
inline double gbps_at(const std::vector<link_rate>& points, double bytes) {
  if (bytes <= static_cast<double>(points.front().bytes)) return points.front().gbps;
  if (bytes >= static_cast<double>(points.back().bytes)) return points.back().gbps;
  const auto high = std::ranges::find_if(
      points, [&](const link_rate& p) { return static_cast<double>(p.bytes) > bytes; });
  const auto low = high - 1;
  const double from = std::log2(low->bytes),
               fraction = (std::log2(bytes) - from) / (std::log2(high->bytes) - from);
  return low->gbps + fraction * (high->gbps - low->gbps);
}

/// The same curve, but nowhere above `max_gbps`: where it crosses that, within a byte.
inline std::vector<link_rate> limited(const std::vector<link_rate>& points, double max_gbps) {
  std::vector<link_rate> out;
  for (const auto& p : points) {
    if (!out.empty() && (p.gbps > max_gbps) != (out.back().gbps > max_gbps)) {
      const auto& low = out.back();
      const double fraction = (max_gbps - low.gbps) / (p.gbps - low.gbps);
      const double from = std::log2(low.bytes);
      const double at = std::exp2(from + fraction * (std::log2(p.bytes) - from));
      const auto bytes = static_cast<std::uint64_t>(std::llround(at));
      if (bytes > low.bytes && bytes < p.bytes) out.push_back({bytes, max_gbps});
    }
    out.push_back(p);
  }
  for (auto& p : out) p.gbps = std::min(p.gbps, max_gbps);
  return out;
}

/// Whether these are points of a curve: 1 to max_link_rates, of increasing bytes from 1 on and
/// positive rates within the bounds.
inline bool are_rates(const std::vector<link_rate>& points) {
  if (points.empty() || points.size() > max_link_rates) return false;
  std::uint64_t before = 0;
  for (const auto& p : points) {
    if (p.bytes <= before || p.bytes > max_rate_bytes) return false;
    if (!(p.gbps > 0 && p.gbps <= max_link_gbps)) return false;
    before = p.bytes;
  }
  return true;
}

/// The same for groups: increasing numbers of GPUs from 2 on, a latency of at most a second.
inline bool are_group_rates(const std::vector<group_rate>& points) {
  if (points.empty() || points.size() > max_link_rates) return false;
  std::uint32_t before = 1;
  for (const auto& p : points) {
    if (p.gpus <= before || p.gpus > max_group_gpus) return false;
    if (!(p.gbps > 0 && p.gbps <= max_link_gbps) || !(p.latency_us >= 0 && p.latency_us <= 1e6))
      return false;
    before = p.gpus;
  }
  return true;
}

}  // namespace troupe
