#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "messages/reason.hpp"
#include "runtime/process/process_group.hpp"
#include "runtime/process/program.hpp"

// Programs that must not outlive a lease, nor the process that started them, nor leave anything
// behind. Each has a keeper: a small process that is its parent and the subreaper of all that it
// starts (a daemon, too, cannot get away from it), and that kills them all when it is told to, when
// the lease runs out by the machine's monotonic clock, or when the process that started it has
// died. So two attempts of one job do not run at a time, also when a node is killed or stopped.

namespace troupe::runtime {

/// How a kept program came to its end.
struct kept_end {
  enum class how {
    exited,         // by itself, or killed as asked: `status`
    not_started,    // `why`
    lease_expired,  // killed: nobody had renewed its lease
    lost,           // its keeper was killed, and it with it
  };
  how what = how::exited;
  int status = 0;  // exit status; 128 + n: a signal n ended it
  std::string why;
};

/// A program and its keeper. Nothing here blocks, but for the destructor. Not for use from two
/// threads at once.
class kept_program {
 public:
  /// Kills the program and all that it has started, and waits for that, some seconds at most.
  ~kept_program();
  kept_program(const kept_program&) = delete;

  /// It may go on until then, in seconds of the monotonic clock (clock.hpp).
  void renew(double until_s);
  /// SIGTERM to its group; after `grace_s`, SIGKILL to all.
  void terminate(double grace_s);
  /// SIGKILL to all that it has started.
  void kill();

  /// Its end, once nothing that it has started is alive. Never blocks; ask when events() is
  /// readable, and from a timer: that of a keeper that was killed comes without an event.
  std::optional<kept_end> poll();
  /// A descriptor that is readable when the keeper has said something. It stays this object's.
  int events() const { return control_; }

 private:
  friend class keeper_server;
  kept_program(int control, process_options o, std::string token);

  int control_;
  process_options options_;
  process_group group_;
  std::optional<kept_end> end_;
  bool keeper_gone_ = false;
};

/// Starts keepers: a process that was forked when this program was small and had one thread, and
/// that lives as long as this program.
class keeper_server {
 public:
  /// `records`: a directory that names running groups, for reap_orphans. `lock`: a descriptor, or
  /// -1; it stays open, and what it locks stays locked, until the last keeper has ended.
  static expected<std::unique_ptr<keeper_server>> start(std::string records, int lock = -1);
  ~keeper_server();
  keeper_server(const keeper_server&) = delete;

  /// That the program could not be started is its end.
  expected<std::unique_ptr<kept_program>> run(const process_options& o, double until_s);

 private:
  keeper_server(int control, pid_t process, std::string records)
      : control_{control}, process_{process}, records_{std::move(records)} {}

  int control_;
  pid_t process_;
  std::string records_;
};

}  // namespace troupe::runtime
