#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "harness/clock.hpp"

namespace troupe::bench {

/// The processor time since its construction that neither this program nor its runs have used.
class foreign_load {
 public:
  foreign_load() : busy_s_{busy_s()}, own_s_{own_s()}, wall_s_{wall_s()} {}

  double percent() const {
    const double foreign_s = busy_s() - busy_s_ - (own_s() - own_s_);
    const auto processors = static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN));
    return 100 * foreign_s / ((wall_s() - wall_s_) * processors);
  }

  /// Processor time of this program, of the runs that have ended, and of all that they had started.
  static double own_s() {
    double s = 0;
    for (const auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
      rusage r{};
      ::getrusage(who, &r);
      for (const auto& t : {r.ru_utime, r.ru_stime})
        s += static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    }
    return s;
  }

 private:
  static double busy_s() {
    std::ifstream in{"/proc/stat"};
    std::string cpu;
    double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, soft = 0, stolen = 0;
    in >> cpu >> user >> nice >> system >> idle >> wait >> irq >> soft >> stolen;
    return (user + nice + system + irq + soft + stolen) /
           static_cast<double>(::sysconf(_SC_CLK_TCK));
  }
  static double wall_s() { return clock_s(CLOCK_MONOTONIC); }

  double busy_s_, own_s_, wall_s_;
};

}  // namespace troupe::bench
