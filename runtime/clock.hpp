#pragma once

namespace troupe::runtime {

/// The world's time in seconds: since 1970 in the real world, since the start in the virtual one.
class clock {
 public:
  virtual ~clock() = default;
  virtual double now_s() const = 0;
};

}  // namespace troupe::runtime
