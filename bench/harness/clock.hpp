#pragma once

#include <ctime>

namespace troupe::bench {

/// Of CLOCK_MONOTONIC; or processor time: of CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID.
inline double clock_s(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace troupe::bench
