#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <utility>

#include "runtime/process/program.hpp"
#include "runtime/world.hpp"

// Helpers that the tests of programs and of their keepers share.

namespace troupe::runtime::test {

/// As far as it can be read: the files of a process in /proc end with it.
inline std::string contents(const std::string& path) {
  std::ifstream in{path};
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

inline process_options shell(const std::string& script) {
  return {.command = {"sh", "-c", script}};
}

/// Dead, or a zombie that has not been reaped.
inline bool gone(pid_t pid) {
  const auto stat = contents("/proc/" + std::to_string(pid) + "/stat");
  const auto end = stat.rfind(')');
  return end == std::string::npos || stat[end + 2] == 'Z';
}

/// A number that a script writes into a file, whole lines only.
inline pid_t written_pid(const std::string& path) {
  std::string text;
  REQUIRE(eventually([&] { return !(text = contents(path)).empty() && text.back() == '\n'; }));
  return std::stoi(text);
}

/// Runs in a forked child, which ends with it; killed and collected with this.
class forked {
 public:
  explicit forked(const std::function<void()>& what) : pid_{::fork()} {
    REQUIRE(pid_ >= 0);
    if (pid_ != 0) return;
    ::signal(SIGTERM, SIG_DFL);  // the test framework's handlers would report a failure
    what();
    ::_exit(0);
  }
  ~forked() { kill(); }
  forked(const forked&) = delete;

  void signal(int s) const { ::kill(pid_, s); }
  void kill() {
    if (pid_ == 0) return;
    signal(SIGKILL);
    ::waitpid(std::exchange(pid_, 0), nullptr, 0);
  }

 private:
  pid_t pid_;
};

}  // namespace troupe::runtime::test
