#pragma once

#include <chrono>

#include "runtime/clock.hpp"

namespace troupe::runtime {

/// The machine's clock, in seconds since 1970.
class real_clock final : public clock {
 public:
  double now_s() const override {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
};

}  // namespace troupe::runtime
