#pragma once

#include <ctime>

#include "runtime/host/clock.hpp"

namespace troupe::runtime {

/// The machine's clocks. The monotonic one includes the time in which the machine is suspended:
/// leases expire then, too.
class real_clock final : public clock {
 public:
  double now_s() const override { return read(CLOCK_BOOTTIME); }
  double wall_s() const override { return read(CLOCK_REALTIME); }

 private:
  static double read(clockid_t which) {
    timespec t{};
    ::clock_gettime(which, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  }
};

}  // namespace troupe::runtime
