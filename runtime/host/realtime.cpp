#include "runtime/host/realtime.hpp"

#include <sched.h>

#include <cerrno>
#include <cstring>

#include "messages/base/refuse.hpp"

namespace troupe::runtime {

// The lowest real-time priority: above every ordinary thread, below the machine's own. Round robin,
// so that two of them share a core.
expected<void> take_realtime_priority() {
  const sched_param lowest{::sched_get_priority_min(SCHED_RR)};
  if (::sched_setscheduler(0, SCHED_RR, &lowest) == 0) return {};
  return refuse(reason::kind::refused, "real-time priority is not permitted: {}",
                std::strerror(errno));
}

bool has_realtime_priority(pid_t process) {
  return ::sched_getscheduler(process) == SCHED_RR;
}

}  // namespace troupe::runtime
