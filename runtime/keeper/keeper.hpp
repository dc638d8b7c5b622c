#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "messages/base/descriptor.hpp"
#include "messages/base/reason.hpp"
#include "runtime/keeper/starters.hpp"
#include "runtime/process/process_group.hpp"
#include "runtime/process/program.hpp"

// Runs programs so that they outlive neither their lease nor the process that started them, and
// leave no processes behind. Each has a keeper: a small process that is its parent and the
// subreaper of all its descendants (daemons cannot escape). The keeper kills them all when it is
// ordered to, when the lease expires on the machine's monotonic clock, or when the process that
// started it has died. A keeper may be stopped, or busy: what is due a moment later is done by the
// process that started it. So may the processes that start keepers: they are woken, then replaced,
// and what they have not begun by then is not started. So two attempts of one job never run at the
// same time, even if a node is killed or stopped.

namespace troupe::runtime {

struct keeper_event;

/// Where the processes that start keepers are found, also once one of them was replaced.
struct keeper_server_place {
  std::string records;
  process_id guard;

  starters find() const { return starters::find(records, guard); }
};

/// How a program under a keeper ended.
struct kept_end {
  enum class how {
    exited,         // by itself, or killed as asked: `status`
    not_started,    // `why`
    lease_expired,  // killed, because its lease was not renewed
    lost,           // the keeper was killed, and the program with it
    no_room,        // `why`: this machine cannot start it, and another one may
  };
  how what = how::exited;
  int status = 0;  // exit status; 128 + n: ended by signal n
  std::string why;
  bool asked = false;      // it was to terminate before it ended
  bool by_signal = false;  // a signal ended it, and not its own exit with such a status
};

/// A program and its keeper. Only the destructor blocks. Not thread-safe.
class kept_program {
 public:
  /// Kills the program and all its descendants, and waits for their end, for a few seconds at most.
  ~kept_program();
  kept_program(const kept_program&) = delete;

  /// The program may run until then, in seconds of the monotonic clock (clock.hpp).
  void renew(double until_s);
  /// SIGTERM to it and its descendants after `signal_after_s`, or when it has ended before
  /// (stop_signals.hpp says what workers get when), and SIGKILL to all after `grace_s`, both from
  /// now. It has ended when none of them is left. If it has not started it never will.
  void terminate(double grace_s, double signal_after_s = 0);
  /// SIGKILL to all its descendants.
  void kill();

  /// How it ended, once none of its descendants is alive. Never blocks; call it when events() is
  /// readable, and from a timer: if the keeper itself was killed there is no event.
  std::optional<kept_end> poll();
  /// A descriptor that is readable when the keeper has sent an event. Owned by this object.
  int events() const { return control_; }

 private:
  friend class keeper_server;
  /// `server`: where to find the processes that are to start its keeper.
  kept_program(descriptor control, descriptor permission, process_options o, std::string token,
               double until_s, keeper_server_place server);
  /// True: no keeper has started it, and none will.
  bool withdraw() const;
  void receive(const keeper_event& e);
  /// Wakes, then replaces the processes that are to start it: they may have been stopped, or hang.
  void see_to_start();
  /// Kills it without its keeper, which may have been stopped, if it has been due for a while.
  void enforce();

  descriptor control_, permission_;
  process_options options_;
  process_group group_;
  keeper_server_place server_;
  double asked_s_, wake_s_;               // when it was to start; when its starters are woken
  bool begun_ = false, started_ = false;  // its keeper, and itself
  std::optional<kept_end> end_;
  bool keeper_gone_ = false;
  double until_s_;                                              // the lease's end
  double kill_by_s_ = std::numeric_limits<double>::infinity();  // the keeper has been asked to
  bool enforced_ = false;                                       // this process has killed it,
  bool expired_ = false;                                        // for its lease
};

/// Starts keepers, from a process that was forked while this program was small and had a single
/// thread, and that lives as long as this program.
class keeper_server {
 public:
  /// `records`: directory of files that describe running groups, for reap_orphans. `lock`: a
  /// descriptor, or -1; keepers inherit it, so its lock is held until the last of them has ended.
  static expected<std::unique_ptr<keeper_server>> start(std::string records, int lock = -1);
  /// Waits for the end of those processes, a few seconds at most.
  ~keeper_server();
  keeper_server(const keeper_server&) = delete;

  /// False: the process that starts keepers was killed, and so was the one that restarts it.
  bool alive() const;
  /// If the program cannot be started, poll() reports that. Fails for what this machine lacks
  /// (`unavailable`), and for an empty command.
  expected<std::unique_ptr<kept_program>> run(const process_options& o, double until_s);

 private:
  keeper_server(descriptor control, keeper_server_place where)
      : control_{std::move(control)}, where_{std::move(where)} {}

  descriptor control_;
  keeper_server_place where_;
};

}  // namespace troupe::runtime
