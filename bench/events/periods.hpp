#pragma once

#include <cstdint>

namespace troupe::bench {

/// The period of every timer where all have the same one.
inline constexpr double period_s = 1e-3;

/// A timer's own sequence of periods, uniform from half to one and a half of period_s. Timers of
/// one period are armed in the order in which they fire, which spares a queue most of its work.
class periods {
 public:
  explicit periods(std::uint32_t seed) : state_{seed * 2654435761u + 1} {}

  double next_s() {
    state_ = state_ * 1664525u + 1013904223u;
    return period_s * (0.5 + static_cast<double>(state_ >> 8) / (1u << 24));
  }

 private:
  std::uint32_t state_;
};

}  // namespace troupe::bench
