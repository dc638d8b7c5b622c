#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

// How a forked child becomes an external program: what `process` and `keeper` share.

namespace troupe::runtime {

/// What to start.
struct process_options {
  std::vector<std::string> command;  // the first is looked up in PATH unless it has a slash
  /// Set, or set again, on top of this process's own environment.
  std::vector<std::pair<std::string, std::string>> environment{};
  std::string directory{};  // where it runs; empty: here
  std::string output{};     // standard output and error are appended to this file; empty: discarded
};

/// Why a program could not start: the step that failed, and errno.
struct start_failure {
  enum class step : int { fork, group, output, directory, program };
  step where = step::fork;
  int why = 0;
};

std::string describe(const start_failure& f, const process_options& o);

/// Everything that the child needs, made before there is a child: between fork and exec of a
/// process that has threads it may not allocate.
class program_plan {
 public:
  /// `token`: its group's, as in process_group.hpp.
  program_plan(const process_options& o, const std::string& token);
  program_plan(const program_plan&) = delete;

  /// In the child: becomes the program, in a process group of its own, once a byte has come from
  /// `go`. Writes a start_failure to `report` if it cannot, and closes it if it can. The kernel
  /// kills the program when the thread that forked it ends.
  [[noreturn]] void become(int go, int report) const;

 private:
  std::vector<std::string> words_, variables_;
  std::vector<char*> arguments_, environment_;
  std::string directory_, output_;
  pid_t parent_ = 0;
  unsigned umask_ = 0;
};

/// From ends[1] to ends[0], closed at exec and with this.
struct pipe_ends {
  int ends[2] = {-1, -1};

  pipe_ends() = default;
  pipe_ends(const pipe_ends&) = delete;
  ~pipe_ends() {
    close(0);
    close(1);
  }
  bool open();
  /// A byte; false if nobody can read it any more, and no SIGPIPE.
  bool write_one();
  void close(int i);
};

}  // namespace troupe::runtime
