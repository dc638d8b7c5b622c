#pragma once

#include <ctime>

namespace troupe::bench {

/// Seconds of processor time that this process has used since the watch was made: what else the
/// machine does counts little. All that is measured here runs on one thread.
class stopwatch {
 public:
  double s() const { return now_s() - start_s_; }

 private:
  static double now_s() {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }
  double start_s_ = now_s();
};

}  // namespace troupe::bench
