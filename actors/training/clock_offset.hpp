#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe::actors {

/// Offset of another host's monotonic clock, from the fastest recent round trip. The error is half
/// of the asymmetry of the two directions, so at most half a round trip.
class clock_offset {
 public:
  /// This host asked at `asked_s` and has the answer at `now_s`, by its own clock; by the other's,
  /// the question came at `came_s` and the answer left at `left_s`.
  void sample(double asked_s, double came_s, double left_s, double now_s) {
    constexpr double rounding_s = 1e-6;
    const double on_the_way_s = std::max(0.0, (now_s - asked_s) - (left_s - came_s));
    const bool old = now_s - sampled_s_ > forget_s;  // clocks drift, 0.1 ms a second at worst
    if (on_the_way_s > quickest_s_ && !old) return;
    quickest_s_ = on_the_way_s;
    sampled_s_ = now_s;
    const double ahead_s = ((came_s - asked_s) + (left_s - now_s)) / 2;
    // What a round trip cannot tell from nothing is nothing: processes of a machine share a clock.
    ahead_s_ = std::abs(ahead_s) <= on_the_way_s / 2 + rounding_s ? 0 : ahead_s;
  }

  double ahead_s() const { return ahead_s_; }
  /// The last sample that counted is so old that another should be taken.
  bool due(double now_s) const { return now_s - sampled_s_ > forget_s; }

 private:
  static constexpr double forget_s = 60;

  double ahead_s_ = 0;
  double quickest_s_ = std::numeric_limits<double>::infinity();
  double sampled_s_ = -std::numeric_limits<double>::infinity();
};

}  // namespace troupe::actors
