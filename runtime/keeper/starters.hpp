#pragma once

#include <string>

#include "runtime/process/process_group.hpp"

// The processes that start keepers: a server, and its guard, which starts it again when it is
// killed (keeper_process.hpp). Either may be stopped, or hang. They are on record beside the groups
// of their programs, so that a restarted owner finds them.

namespace troupe::runtime {

struct starters {
  process_id guard, server;

  /// As recorded by the guard; without a record, which a full disk prevents, the guard's child.
  static starters find(const std::string& records, const process_id& guard);

  /// Is one of them alive?
  bool alive() const;
  /// SIGCONT to both: they may have been stopped.
  void wake() const;
  /// SIGKILL to the server, so that its guard starts another one.
  void replace_server() const;
  /// SIGKILL to both. Keepers that the server has started go on, and are woken.
  void end() const;
};

/// `records`: the directory of the groups' files. The last one written counts.
void record_starters(const std::string& records, const starters& s);
void forget_starters(const std::string& records);

/// Ends those that an owner that has died has left: they may hold its locks.
void end_recorded_starters(const std::string& records);

}  // namespace troupe::runtime
