#include "runtime/process/program.hpp"

#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "runtime/host/private_files.hpp"
#include "runtime/process/inherited_variables.hpp"
#include "runtime/process/process_group.hpp"

extern char** environ;

namespace troupe::runtime {

namespace {

// Between fork and exec a child may call only what is async-signal-safe: another thread may hold
// malloc's lock at the fork. So everything that allocates (arguments, environment, candidate files)
// is made by program_plan before the fork, and become() makes system calls only.
[[noreturn]] void give_up(int to, start_failure::step where) {
  const start_failure f{where, errno};
  [[maybe_unused]] const auto written = ::write(to, &f, sizeof f);
  ::_exit(127);
}

/// Drops the privileges that a node has for its own threads. A failure here costs the program
/// nothing that it needs.
// Real-time priority and capabilities are for the keeper's promptness; a program with them could
// starve the machine.
void drop_privileges() {
  ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3]{};
  if (::syscall(SYS_capget, &header, sets) == 0) {
    for (auto& s : sets) s.inheritable = 0;
    ::syscall(SYS_capset, &header, sets);
  }
  const sched_param usual{};
  ::sched_setscheduler(0, SCHED_OTHER, &usual);
  errno = 0;
  if (const int nice = ::getpriority(PRIO_PROCESS, 0); errno == 0 && nice < 0)
    ::setpriority(PRIO_PROCESS, 0, 0);
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_RTPRIO, &none);
  ::setrlimit(RLIMIT_NICE, &none);
}

/// Has a file's beginning no zero byte? Only calls that are async-signal-safe; errno stays.
bool is_text(const char* file) {
  const int why = errno;
  char beginning[128];
  const int fd = ::open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  const auto n = fd < 0 ? -1 : ::read(fd, beginning, sizeof beginning);
  if (fd >= 0) ::close(fd);
  errno = why;
  return n >= 0 && std::memchr(beginning, 0, static_cast<std::size_t>(n)) == nullptr;
}

}  // namespace

program_plan::program_plan(const process_options& o, const std::string& token, privileges p)
    : words_{o.command},
      directory_{o.directory},
      output_{o.output},
      privileges_{p},
      parent_{::getpid()},
      umask_{umask_of_programs()} {
  if (output_.empty()) output_ = "/dev/null";
  auto set = o.environment;
  set.emplace_back(group_token_variable, token);
  const auto is_set = [&](const std::string& entry) {
    for (const auto& [name, value] : set)
      if (entry.compare(0, name.size() + 1, name + "=") == 0) return true;
    return false;
  };
  for (char** e = environ; *e != nullptr; ++e) {
    const std::string_view entry{*e};
    if (!is_set(*e) && !belongs_to_another_job(entry.substr(0, entry.find('='))))
      variables_.emplace_back(entry);
  }
  for (const auto& [name, value] : set) variables_.push_back(name + "=" + value);
  files_ = files_to_run(o);
  for (auto& w : words_) arguments_.push_back(w.data());
  for (auto& v : variables_) environment_.push_back(v.data());
  arguments_.push_back(nullptr);
  environment_.push_back(nullptr);
}

// Only calls that are async-signal-safe (signal-safety(7)).
void program_plan::become(int go, int report) const {
  using step = start_failure::step;
  // The kernel kills this process when its parent's thread ends.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent_) ::_exit(127);  // the parent died before prctl
  if (::setpgid(0, 0) != 0) give_up(report, step::group);
  // Ignored signals and masks survive exec, and shells rely on the defaults.
  for (int s = 1; s < NSIG; ++s) ::signal(s, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  char byte = 0;
  if (::read(go, &byte, 1) != 1) ::_exit(127);  // wait until the group is recorded
  const int in = ::open("/dev/null", O_RDONLY);
  const int out = ::open(output_.c_str(), O_WRONLY | O_CREAT | O_APPEND, private_file_mode);
  if (in < 0 || out < 0) give_up(report, step::output);
  if (::dup2(in, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(out, 2) < 0) give_up(report, step::output);
  ::umask(umask_);
  if (!directory_.empty() && ::chdir(directory_.c_str()) != 0) give_up(report, step::directory);
  // Closed by exec and not before: `report` must still carry a failure of exec.
  ::close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
  if (privileges_ == privileges::plain) drop_privileges();
  int why = ENOENT;
  for (const auto& file : files_) {
    ::execve(file.c_str(), arguments_.data(), environment_.data());
    // A text without a first line that names its interpreter is a script of the shell; a program of
    // another machine's kind is not.
    if (errno == ENOEXEC && is_text(file.c_str()))
      ::execvpe(file.c_str(), arguments_.data(), environment_.data());  // it has a slash: no search
    if (errno == EACCES) why = EACCES;  // the most useful reason, if no other file can be run
    if (errno != ENOENT && errno != ENOTDIR && errno != EACCES) {
      why = errno;
      break;
    }
  }
  errno = why;
  give_up(report, step::program);
}

// A socket pair and not a pipe: MSG_NOSIGNAL spares the process a SIGPIPE when the child has died.
bool pipe_ends::open() {
  int both[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both) != 0) return false;
  for (int i = 0; i < 2; ++i) ends[i] = descriptor{both[i]};
  return true;
}

bool pipe_ends::write_one() {
  return ::send(ends[1], "g", 1, MSG_NOSIGNAL) == 1;
}

}  // namespace troupe::runtime
