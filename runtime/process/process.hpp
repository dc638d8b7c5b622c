#pragma once

#include <memory>
#include <optional>

#include "messages/base/reason.hpp"
#include "runtime/process/process_group.hpp"
#include "runtime/process/program.hpp"

namespace troupe::runtime {

/// An external program in its own process group. The kernel kills it when this program dies, but
/// not its descendants; see keeper.hpp for these. Not thread-safe.
class process {
 public:
  /// Starts it. Fails if the program, directory or output file cannot be opened.
  static expected<std::unique_ptr<process>> start(const process_options& o);

  /// Kills the group if it still exists, and waits for its end.
  ~process();
  process(const process&) = delete;

  pid_t id() const { return group_.leader; }

  /// The exit status, or 128 + n for signal n, once the program has ended and its group is empty:
  /// remaining processes are killed. Never blocks; call it from a timer.
  std::optional<int> poll();

  /// Sends SIGTERM or SIGKILL to the group. Neither waits.
  void terminate();
  void kill();

 private:
  process() = default;
  expected<void> launch(const process_options& o);

  process_group group_;
  std::optional<int> status_;
};

}  // namespace troupe::runtime
