#include "runtime/process/readable_watch.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace troupe::runtime {

namespace {

void watch(int poll, int descriptor, std::uint32_t events) {
  epoll_event e{};
  e.events = events;
  e.data.fd = descriptor;
  if (::epoll_ctl(poll, EPOLL_CTL_ADD, descriptor, &e) != 0)
    throw std::system_error(errno, std::generic_category(), "cannot watch a descriptor");
}

}  // namespace

readable_watch::readable_watch(std::function<void()> on_readable)
    : on_readable_{std::move(on_readable)},
      poll_{::epoll_create1(EPOLL_CLOEXEC)},
      stop_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)} {
  watch(poll_, stop_, EPOLLIN);
  thread_ = std::thread{[this] { run(); }};
}

readable_watch::~readable_watch() {
  const std::uint64_t one = 1;
  (void)!::write(stop_, &one, sizeof one);
  thread_.join();
}

// Edge-triggered: the callback reads in another thread, and a level-triggered descriptor would fire
// until that has happened.
void readable_watch::add(int descriptor) {
  watch(poll_, descriptor, EPOLLIN | EPOLLET);
}

// One callback for all ready descriptors: it only wakes the actor, which looks at each.
void readable_watch::run() const {
  constexpr int max_events = 16;
  epoll_event events[max_events];
  for (;;) {
    const int n = ::epoll_wait(poll_, events, max_events, -1);
    if (n < 0 && errno != EINTR) return;
    for (int i = 0; i < n; ++i)
      if (events[i].data.fd == stop_) return;
    if (n > 0) on_readable_();
  }
}

}  // namespace troupe::runtime
