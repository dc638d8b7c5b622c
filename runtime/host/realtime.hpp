#pragma once

#include <sys/types.h>

#include "messages/reason.hpp"

namespace troupe::runtime {

/// The calling thread, and those that it starts from now on, run before all threads of this machine
/// that have no real-time priority (SCHED_RR, the lowest). Fails if this user may not have it
/// (RLIMIT_RTPRIO, CAP_SYS_NICE).
expected<void> take_realtime_priority();

/// Does the main thread of that process have it?
bool has_realtime_priority(pid_t process);

}  // namespace troupe::runtime
