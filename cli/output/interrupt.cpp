#include "cli/output/interrupt.hpp"

namespace troupe::cli {

interrupt::interrupt() {
  sigemptyset(&set_);
  sigaddset(&set_, SIGINT);
  sigaddset(&set_, SIGTERM);
  // Blocked signals stay pending until arrived() takes them: no handler, so nothing has to be
  // async-signal-safe. Threads that are started later inherit the mask.
  pthread_sigmask(SIG_BLOCK, &set_, &before_);
}

interrupt::~interrupt() {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool interrupt::arrived() {
  const timespec at_once{0, 0};
  arrived_ = arrived_ || sigtimedwait(&set_, nullptr, &at_once) > 0;
  return arrived_;
}

}  // namespace troupe::cli
