#pragma once

#include "harness/clock.hpp"

namespace troupe::bench {

/// Seconds of processor time that this process has used since the watch was made: what else the
/// machine does counts little. All that is measured here runs on one thread.
class stopwatch {
 public:
  double s() const { return clock_s(CLOCK_PROCESS_CPUTIME_ID) - start_s_; }

 private:
  double start_s_ = clock_s(CLOCK_PROCESS_CPUTIME_ID);
};

}  // namespace troupe::bench
