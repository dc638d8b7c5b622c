#pragma once

#include <chrono>

namespace troupe::bench {

/// Real seconds since it was made.
class stopwatch {
 public:
  double s() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace troupe::bench
