#pragma once

#include <chrono>

namespace troupe::runtime {

/// Real time, in any world: for reporting the cost of a decision, never for deciding.
class stopwatch {
 public:
  double us() const {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begun_)
        .count();
  }
  double s() const { return us() * 1e-6; }

 private:
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
};

}  // namespace troupe::runtime
