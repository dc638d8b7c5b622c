#pragma once

#include <map>
#include <vector>

#include "runtime/process/process_group.hpp"

namespace troupe::runtime {

/// SIGTERM to the descendants of this process when they are to stop: once to each that is there
/// then, with SIGCONT, since a stopped process handles nothing. This process must be the subreaper
/// of them all.
///
/// Workers of a program (the data loaders of a training) must not die before the program could
/// save: they are held back until it has ended. A worker is a fork of its parent that has not
/// become another program, or one of Python's multiprocessing, and what such a process has started.
/// A shell's forks are no workers, and neither are those of a parent that ignores SIGTERM.
class stop_signals {
 public:
  /// To all but workers, parents first. What appears later is part of the answer, such as a script
  /// that saves, and gets none.
  void send();
  /// To the workers whose program has ended; `all`: to all of them.
  void release(bool all);
  bool holds_some() const { return !held_.empty(); }

 private:
  /// A process, and its answer to SIGTERM.
  struct traits {
    process_id id;
    std::string file;         // the executable's
    std::uint64_t image = 0;  // address of its stack's beginning, as exec chose it; 0: unknown
    bool helper = false;      // of Python's multiprocessing
    bool catches = false, ignores = false;
    process_id waits_for{};  // held back until that one's end; none: it is signalled

    bool is_held() const { return waits_for.pid != 0; }
  };
  struct held {
    process_id who, waits_for;
  };

  static traits traits_of(const process_id& p);
  static bool is_fork(const traits& child, const traits& parent);
  static bool is_worker(const traits& child, const traits& parent);
  bool came_before(const descendant& d, pid_t self) const;
  void signal_forks_of(const std::vector<process_id>& ended);

  std::map<pid_t, traits> known_;  // that were there
  std::vector<held> held_;
};

}  // namespace troupe::runtime
