#pragma once

#include <chrono>
#include <cstdint>

namespace troupe::actors {

/// Seconds as CAF's timers take them.
inline std::chrono::nanoseconds nanoseconds_of(double s) {
  return std::chrono::nanoseconds{static_cast<std::int64_t>(s * 1e9)};
}

/// A timer may fire this much early: times on a host's clock are rounded to nanoseconds.
inline constexpr double timer_rounding_s = 1e-6;

}  // namespace troupe::actors
