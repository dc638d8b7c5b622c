#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace troupe::runtime {

/// Polls until the condition holds, or returns false after `limit_s`. Blocks the caller: not for
/// actors.
inline bool wait_until(const std::function<bool()>& so, double limit_s, double every_s = 0.002) {
  using steady = std::chrono::steady_clock;
  const auto end = steady::now() + std::chrono::duration<double>(limit_s);
  while (!so()) {
    if (steady::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::duration<double>(every_s));
  }
  return true;
}

}  // namespace troupe::runtime
