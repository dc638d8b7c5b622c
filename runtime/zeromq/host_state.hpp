#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <string>

#include "messages/base/descriptor.hpp"
#include "messages/wire/session.hpp"
#include "runtime/host/log_limiter.hpp"
#include "runtime/zeromq/transport.hpp"

namespace troupe::runtime {

/// State of one host that all parts of its transport use (engine.hpp has the overview).
///
/// One lock for all parts: a sender must see the connection table, the queues and the direct links
/// in one piece. Functions marked "under the lock" expect the caller to hold `mutex`; everything
/// else is the thread's alone, except for atomic members.
struct host_state {
  using steady = std::chrono::steady_clock;
  enum count {
    sent,
    received,
    no_route,
    full,
    lost,
    malformed,
    strangers,
    over_credit,
    count_kinds
  };

  explicit host_state(zeromq_options o) : options{std::move(o)} {
    if (!options.cluster) options.cluster = troupe::cluster{};  // a client may have none
  }

  const troupe::cluster& cluster() const { return *options.cluster; }
  bool is_gateway() const { return troupe::is_gateway(cluster(), self); }
  bool is_node() const { return troupe::is_node(cluster(), self); }

  /// The duration of `n` intervals between greetings: every pause is a multiple of that.
  steady::duration greetings(double n) const {
    return std::chrono::duration_cast<steady::duration>(
        std::chrono::duration<double>(n * options.greeting_s));
  }

  void add(count c, std::uint64_t n = 1) { counts[c].fetch_add(n, std::memory_order_relaxed); }

  /// How many log lines this one stands for; 0: do not write it (log_limiter.hpp). Thread only.
  std::uint64_t pass_line(const std::string& subject) {
    return lines_.pass(subject,
                       std::chrono::duration<double>(steady::now().time_since_epoch()).count());
  }

  /// Under the lock: one system call for all that is queued before the thread runs again.
  void wake_if_asleep() {
    if (!sleeping) return;
    sleeping = false;
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_fd, &one, sizeof one);
  }

  zeromq_options options;
  host_entry entry;  // of the host's own cluster file; clients have none
  std::atomic<address> self{first_client_address};
  std::string endpoint;   // where it listens, with the real port
  bool trim_due = false;  // memory of peers that have left can go back to the kernel
  std::array<std::atomic<std::uint64_t>, count_kinds> counts{};

  mutable std::mutex mutex;
  address upstream = controller_address;  // written under the lock, by the thread
  descriptor wake_fd;
  bool sleeping = false;  // the thread is in poll(), or about to be

 private:
  log_limiter lines_;
};

}  // namespace troupe::runtime
