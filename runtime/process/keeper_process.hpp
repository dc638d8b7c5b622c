#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "runtime/process/program.hpp"

// Between keeper_server and the processes that it forks.

namespace troupe::runtime {

/// What a program's owner says to its keeper.
struct keeper_command {
  enum kind : std::int32_t { renew, terminate, kill };
  std::int32_t what = renew;
  double value = 0;  // renew: until when, terminate: the grace; in seconds
};

/// What a keeper says to its program's owner: that it runs, and how it ended.
struct keeper_event {
  enum kind : std::int32_t { started, exited, not_started, lease_expired };
  std::int32_t what = started;
  pid_t leader = 0;                // started
  std::uint64_t leader_ticks = 0;  // started: the leader's start
  std::int32_t status = 0;         // exited, lease_expired
  start_failure failure;           // not_started
};

/// What a keeper is to start; crosses in a file without a name.
struct keeper_request {
  process_options program;
  std::string token, records;
  double until_s = std::numeric_limits<double>::infinity();

  /// The file's descriptor; -1 and errno if there is no room for it.
  int write() const;
  static bool read(int file, keeper_request& to);
};

/// The life of the process that forks keepers: each message on `control` brings a keeper's own
/// channel and its request. Of what is open it keeps `lock` (-1: nothing), and the keepers do.
[[noreturn]] void serve_keepers(int control, int lock);

}  // namespace troupe::runtime
