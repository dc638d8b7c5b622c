#pragma once

#include <memory>
#include <optional>

#include "messages/reason.hpp"
#include "runtime/process/process_group.hpp"
#include "runtime/process/program.hpp"

namespace troupe::runtime {

/// An external program in a process group of its own. It does not outlive this program: the kernel
/// kills it if this program dies, but not what it has started itself; see keeper.hpp for that. Not
/// for use from two threads at once.
class process {
 public:
  /// Starts it. Refuses what cannot run: no such program, directory or output file.
  static expected<std::unique_ptr<process>> start(const process_options& o);

  /// Kills the group if it is still there, and waits for that.
  ~process();
  process(const process&) = delete;

  pid_t id() const { return group_.leader; }

  /// The exit status, 128+n if signal n ended it, once it has ended and nothing of its group is
  /// alive: what the program leaves behind is killed. Never blocks; ask from a timer.
  std::optional<int> poll();

  /// Asks the group to end (SIGTERM), and makes it end (SIGKILL). Neither waits.
  void terminate();
  void kill();

 private:
  process() = default;
  expected<void> launch(const process_options& o);

  process_group group_;
  std::optional<int> status_;
};

}  // namespace troupe::runtime
