#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe::actors {

/// Offset of another host's monotonic clock, from the fastest recent round trip (Cristian, 1989).
/// The error is half of the asymmetry of the two directions, so at most half a round trip: the
/// fastest one, which met the shortest queues, is the most exact.
class clock_offset {
 public:
  /// A round trip: this host sent a request at `sent_s` and has the reply at `now_s`, on its own
  /// clock; on the other's, the request arrived at `received_s` and the reply left at `replied_s`.
  void sample(double sent_s, double received_s, double replied_s, double now_s) {
    constexpr double rounding_s = 1e-6;
    const double round_trip_s = std::max(0.0, (now_s - sent_s) - (replied_s - received_s));
    const bool old = now_s - sampled_s_ > max_age_s;  // clocks drift by up to 0.1 ms a second
    if (round_trip_s > fastest_s_ && !old) return;
    fastest_s_ = round_trip_s;
    sampled_s_ = now_s;
    const double ahead_s = ((received_s - sent_s) + (replied_s - now_s)) / 2;
    // An offset within the error counts as zero: processes of one machine share a clock.
    ahead_s_ = std::abs(ahead_s) <= round_trip_s / 2 + rounding_s ? 0 : ahead_s;
  }

  /// How far the other clock is ahead of this one; 0 before the first sample.
  double ahead_s() const { return ahead_s_; }
  /// Should another sample be taken?
  bool due(double now_s) const { return now_s - sampled_s_ > max_age_s; }

 private:
  static constexpr double max_age_s = 60;

  double ahead_s_ = 0;
  double fastest_s_ = std::numeric_limits<double>::infinity();
  double sampled_s_ = -std::numeric_limits<double>::infinity();
};

}  // namespace troupe::actors
