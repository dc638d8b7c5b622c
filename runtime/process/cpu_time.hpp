#pragma once

#include <optional>

#include <sys/types.h>

namespace troupe::runtime {

/// Time of a process's threads on the machine's cores, in seconds since they began.
struct cpu_time {
  double ran_s = 0;     // on a core
  double waited_s = 0;  // ready to run, while others had the cores

  cpu_time& operator+=(const cpu_time& x) {
    ran_s += x.ran_s;
    waited_s += x.waited_s;
    return *this;
  }
  cpu_time operator-(const cpu_time& x) const { return {ran_s - x.ran_s, waited_s - x.waited_s}; }
};

/// The time of a process's living threads. None: there is no such process, or the kernel does not
/// count.
std::optional<cpu_time> cpu_time_of(pid_t id);

}  // namespace troupe::runtime
