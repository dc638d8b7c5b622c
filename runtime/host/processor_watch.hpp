#pragma once

#include <ctime>

namespace troupe::runtime {

/// Processor time of this process, in any world: for reporting the cost of a decision, never for
/// deciding.
class processor_watch {
 public:
  double s() const { return now_s() - begun_s_; }

 private:
  static double now_s() {
    timespec t{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }

  double begun_s_ = now_s();
};

}  // namespace troupe::runtime
