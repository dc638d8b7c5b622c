#pragma once

namespace troupe::runtime {

/// A host's two clocks, both in seconds.
class clock {
 public:
  virtual ~clock() = default;
  /// Monotonic, with an arbitrary origin per host: for durations, timers, leases and timeouts.
  /// Values of two hosts cannot be compared.
  virtual double now_s() const = 0;
  /// Since 1970 in the real world, since the start in the virtual one: only for display and for the
  /// journal's timestamps. It may be wrong, and may step forwards and backwards.
  virtual double wall_s() const = 0;
};

}  // namespace troupe::runtime
