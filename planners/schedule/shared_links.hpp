#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "messages/base/flow_share.hpp"
#include "messages/base/time.hpp"

namespace troupe::planners {

/// The links inside datacenters of a simulated execution: transfers on a link share its bandwidth.
/// The caller numbers its transfers, and has an event for each time that is returned here. Shares
/// are computed in whole nanoseconds, as in the virtual world, so that both give the same times.
class shared_links {
 public:
  /// A flow is a sending stage and a destination. Transfers of one flow go in order.
  using flow = std::pair<std::uint32_t, std::uint32_t>;

  explicit shared_links(std::uint32_t number) : links_(number) {}

  /// A transfer of `link_s` of a link's time, with at most `share` of it. `count`: equal transfers
  /// to as many destinations, which end together. Returns when to wake the link; none: it is woken
  /// by then.
  std::optional<double> start(std::uint32_t which, double link_s, double share, double now_s,
                              flow who, std::size_t transfer, std::size_t count) {
    auto& x = links_[which];
    x.share.start(std::llround(now_s * 1e9), who, std::round(link_s * 1e9), transfer, count, share);
    return next(x);
  }

  /// Takes the transfers that have ended; flows that began later may have delayed them, so there
  /// may be none. Returns when to wake it next.
  template <class Ended>
  std::optional<double> wake(std::uint32_t which, double at_s, Ended ended) {
    auto& x = links_[which];
    const auto at = std::llround(at_s * 1e9);
    if (at >= x.wakes_at) x.wakes_at = std::numeric_limits<time_ns>::max();
    while (const auto transfer = x.share.take_ended(at)) ended(*transfer);
    return next(x);
  }

 private:
  struct link {
    flow_share<flow> share;
    time_ns wakes_at = std::numeric_limits<time_ns>::max();
  };

  static std::optional<double> next(link& x) {
    const auto end = x.share.next_end();
    if (!end || *end >= x.wakes_at) return {};
    x.wakes_at = *end;
    return static_cast<double>(*end) * 1e-9;
  }

  std::vector<link> links_;
};

}  // namespace troupe::planners
