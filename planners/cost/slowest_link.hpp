#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "messages/domain/cluster.hpp"

namespace troupe::planners {

/// One imaginary link, as slow as the slowest of those that were seen, at every size.
class slowest_link {
 public:
  /// `share`: the part of the link's rate that counts.
  void limit(const link& l, double share = 1) {
    latency_s_ = std::max(latency_s_, l.latency_us * 1e-6);
    // The one rate of a link with rates by size does not count.
    if (!l.rates) bytes_s_ = std::min(bytes_s_, l.gbps * share * 1e9 / 8);
    if (!l.has_rates()) return;
    const bool known = std::ranges::any_of(
        with_rates_, [&](const auto& s) { return s.of == l && s.share == share; });
    if (!known) with_rates_.push_back({l, share});
  }

  double latency_s() const { return latency_s_; }
  /// For transfers of that many bytes, sent by that many GPUs, that have the link alone.
  double bytes_s(double bytes, std::uint32_t flows) const {
    double slowest = bytes_s_;
    for (const auto& s : with_rates_)
      slowest = std::min(slowest, s.share * s.of.bytes_s(bytes, flows));
    return slowest;
  }

 private:
  struct seen {
    link of;
    double share = 1;
  };
  double bytes_s_ = std::numeric_limits<double>::infinity(), latency_s_ = 0;
  std::vector<seen> with_rates_;
};

}  // namespace troupe::planners
