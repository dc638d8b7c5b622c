#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "messages/base/descriptor.hpp"
#include "runtime/process/program.hpp"

// The protocol between keeper_server and the processes that it forks.

namespace troupe::runtime {

/// Owner to keeper.
struct keeper_command {
  enum kind : std::int32_t { renew, terminate, kill };
  std::int32_t what = renew;
  double value = 0;           // renew: the new end; terminate: the grace period; in seconds
  double signal_after_s = 0;  // terminate: of the grace, before SIGTERM
};

/// Keeper to owner: it exists, the program has started, or has ended.
struct keeper_event {
  enum kind : std::int32_t { started, exited, not_started, lease_expired, begun };
  std::int32_t what = started;
  pid_t leader = 0;                // started
  std::uint64_t leader_ticks = 0;  // started: the leader's start time
  pid_t keeper = 0;                // begun: the keeper itself
  std::uint64_t keeper_ticks = 0;  // begun: the keeper's start time
  std::int32_t status = 0;         // exited, lease_expired
  bool asked = false;              // likewise: it was to terminate before it ended
  bool by_signal = false;          // likewise: a signal ended it
  start_failure failure{};         // not_started
};

/// A permission that one of two processes can take, once: the keeper to start its program, or the
/// owner, so that it is never started. An eventfd.
descriptor make_permission();
bool take_permission(int permission);

/// The program that a keeper starts; passed in an unlinked temporary file.
struct keeper_request {
  process_options program;
  std::string token, records;
  double until_s = std::numeric_limits<double>::infinity();

  /// The file; none, and errno, on failure.
  descriptor write() const;
  static bool read(int file, keeper_request& to);
};

/// Main loop of the process that forks keepers. It is a child of a process that does nothing but
/// start it again if it is killed, and whose own end it survives; both are on record beside
/// `records` (starters.hpp). Each message on `control` has the socket of a new keeper, its request
/// and its permission to start. It closes all descriptors except `lock` (-1: none), which the
/// keepers inherit.
[[noreturn]] void serve_keepers(int control, int lock, const std::string& records);

}  // namespace troupe::runtime
