#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "messages/reason.hpp"
#include "runtime/process_group.hpp"

namespace troupe::runtime {

/// What to start.
struct process_options {
  std::vector<std::string> command;  // the first is looked up in PATH unless it has a slash
  /// Set, or set again, on top of this process's own environment.
  std::vector<std::pair<std::string, std::string>> environment{};
  std::string directory{};  // where it runs; empty: here
  std::string output{};     // standard output and error are appended to this file; empty: discarded
  std::string records{};    // directory that names running groups, for reap_orphans; empty: none
};

/// An external program in a process group of its own. It does not outlive this program: the kernel
/// kills it if this program dies, and reap_orphans kills what is left of its group at the next
/// start. Not for use from two threads at once.
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
  std::string records_;
  std::optional<int> status_;
};

}  // namespace troupe::runtime
