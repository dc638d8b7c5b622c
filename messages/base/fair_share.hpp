#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "messages/base/time.hpp"

namespace troupe {

/// One direction of a link, shared by concurrent transfers: all have the same rate, 1/n of the
/// capacity, but never more than one connection carries (max-min fairness on one link).
///
/// Since all rates are equal, it is enough to count the bytes that any one transfer would have
/// received since the link was last idle: a transfer ends when that count has grown by its size.
/// Starting and ending a transfer cost O(log n). Times are nanoseconds.
class fair_share {
 public:
  /// `connection_bytes_s` <= 0: one connection can fill the link.
  fair_share(double capacity_bytes_s, double connection_bytes_s)
      : capacity_bytes_ns_{capacity_bytes_s * 1e-9},
        connection_bytes_ns_{connection_bytes_s > 0 ? connection_bytes_s * 1e-9
                                                    : capacity_bytes_ns_} {}

  std::size_t transfers() const { return transfers_; }

  /// The rate of each of n transfers, in bytes per nanosecond.
  double rate(std::size_t n) const {
    return std::min(connection_bytes_ns_,
                    capacity_bytes_ns_ / static_cast<double>(std::max<std::size_t>(n, 1)));
  }

  /// The duration of a transfer on an otherwise idle link, rounded up.
  time_ns alone(double bytes) const { return static_cast<time_ns>(std::ceil(bytes / rate(1))); }

  /// Starts `count` transfers of that many bytes each, which end together.
  void start(time_ns now, double bytes, std::uint64_t token, std::size_t count = 1) {
    advance(now);
    active_.push_back({served_ + bytes, ++sequence_, token, count});
    transfers_ += count;
    std::push_heap(active_.begin(), active_.end(), later);
  }

  /// When the next transfer ends if no other starts before, rounded up.
  std::optional<time_ns> next_end() const {
    if (active_.empty()) return std::nullopt;
    const double left = std::max(0.0, active_.front().end - served_);
    return at_ + static_cast<time_ns>(std::ceil(left / rate(transfers_) - 1e-6));
  }

  /// Removes a transfer that has ended by now; of several, the first.
  std::optional<std::uint64_t> take_ended(time_ns now) {
    const auto end = next_end();
    if (!end || *end > now) return std::nullopt;
    const double target = active_.front().end;
    advance(now);
    served_ = std::max(served_, target);
    const auto token = active_.front().token;
    transfers_ -= active_.front().count;
    std::pop_heap(active_.begin(), active_.end(), later);
    active_.pop_back();
    if (active_.empty()) served_ = 0;
    return token;
  }

 private:
  struct transfer {
    double end = 0;  // value of `served_` at which it ends
    std::uint64_t sequence = 0, token = 0;
    std::size_t count = 1;
  };
  static bool later(const transfer& a, const transfer& b) {
    return a.end > b.end || (a.end == b.end && a.sequence > b.sequence);
  }

  void advance(time_ns now) {
    if (!active_.empty()) served_ += rate(transfers_) * static_cast<double>(now - at_);
    at_ = now;
  }

  double capacity_bytes_ns_, connection_bytes_ns_;
  double served_ = 0;  // bytes that each transfer got since the link was last idle
  time_ns at_ = 0;     // time of that count
  std::uint64_t sequence_ = 0;
  std::vector<transfer> active_;
  std::size_t transfers_ = 0;  // their number
};

}  // namespace troupe
