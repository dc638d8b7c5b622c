#pragma once

namespace troupe::runtime {

/// A host's two clocks, both in seconds.
class clock {
 public:
  virtual ~clock() = default;
  /// Monotonic, from an origin of the host's own: for every duration, timer, lease and silence
  /// limit. Nobody can set it. Values of two hosts cannot be compared.
  virtual double now_s() const = 0;
  /// Since 1970 in the real world, since the start in the virtual one: only for what people read
  /// and for the journal's timestamps. It may be wrong, and may step forwards and backwards.
  virtual double wall_s() const = 0;
};

}  // namespace troupe::runtime
