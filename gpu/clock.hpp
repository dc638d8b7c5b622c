#pragma once

#include <chrono>

namespace troupe::gpu {

/// Seconds of a clock that only goes forward: what devices are timed by.
inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace troupe::gpu
