#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "messages/base/descriptor.hpp"

// How a forked child becomes an external program: shared by `process` and `keeper`.

namespace troupe::runtime {

/// A program to start.
struct process_options {
  /// The first element is searched in the PATH of `environment` unless it has a slash; folders
  /// there that are no absolute paths are relative to `directory`.
  std::vector<std::string> command;
  /// Added to this process's environment, or replaced in it.
  std::vector<std::pair<std::string, std::string>> environment{};
  std::string directory{};  // working directory; empty: this process's
  std::string output{};     // standard output and error are appended to this file; empty: discarded
};

/// Why a program could not start: the step that failed, and errno.
struct start_failure {
  enum class step : int { fork, group, output, directory, program };
  step where = step::fork;
  int why = 0;
};

/// A sentence that names what is missing: a script's interpreter is another file than the script.
/// To be called on the machine that could not start it.
std::string describe(const start_failure& f, const process_options& o);

/// As of shells: 126 for a program that is there and cannot be run (not executable, a directory,
/// another machine's), otherwise 127.
int exit_status_of(const start_failure& f);

/// The files that the command's first word may mean, in the order in which a shell would look;
/// relative ones count from its working directory.
std::vector<std::string> files_to_run(const process_options& o);

/// Everything that the child needs, prepared before the fork: a child of a multi-threaded process
/// must not allocate between fork and exec.
class program_plan {
 public:
  /// `plain`: without this process's ambient and inheritable capabilities, real-time and raised
  /// priority: a node may have these for its keepers and devices, but not for users' programs.
  enum class privileges : bool { inherited, plain };

  /// `token`: the group's, see process_group.hpp.
  program_plan(const process_options& o, const std::string& token,
               privileges p = privileges::inherited);
  program_plan(const program_plan&) = delete;

  /// In the child: execs the program, in its own process group, after a byte has arrived on `go`.
  /// On failure writes a start_failure to `report`; on success that is closed. The kernel kills the
  /// program when the thread that forked it ends.
  [[noreturn]] void become(int go, int report) const;

 private:
  std::vector<std::string> words_, variables_;
  std::vector<std::string> files_;  // that the first word may mean, in order
  std::vector<char*> arguments_, environment_;
  std::string directory_, output_;
  privileges privileges_;
  pid_t parent_ = 0;
  unsigned umask_ = 0;
};

/// A pipe from ends[1] to ends[0], closed at exec and by the destructor.
struct pipe_ends {
  descriptor ends[2];

  bool open();
  /// Writes a byte; false if there is no reader. Never raises SIGPIPE.
  bool write_one();
};

}  // namespace troupe::runtime
