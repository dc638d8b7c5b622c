#pragma once

#include <sys/types.h>

#include "messages/base/reason.hpp"

namespace troupe::runtime {

/// Moves the calling thread, and threads that it starts later, to SCHED_RR at the lowest real-time
/// priority: they preempt every normal thread of the machine. Fails without CAP_SYS_NICE or an
/// RLIMIT_RTPRIO of at least 1.
expected<void> take_realtime_priority();

/// Whether the main thread of that process runs at real-time priority.
bool has_realtime_priority(pid_t process);

}  // namespace troupe::runtime
