#pragma once

#include <chrono>
#include <cstdint>

namespace troupe::actors {

/// Seconds as CAF's timers take them.
inline std::chrono::nanoseconds nanoseconds_of(double s) {
  return std::chrono::nanoseconds{static_cast<std::int64_t>(s * 1e9)};
}

}  // namespace troupe::actors
