#include "mutation/sandbox.hpp"

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include <fcntl.h>
#include <linux/mount.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace troupe::mutation_test {

namespace {

constexpr int no_sandbox = 125;  // exit code

[[noreturn]] void stop(const char* what) {
  std::perror(what);
  _exit(no_sandbox);
}

void put(const char* file, const std::string& text) {
  std::ofstream{file} << text;
}

/// Who is not root is the only user of a namespace of users.
void enter_namespaces() {
  const auto user = std::to_string(getuid()), group = std::to_string(getgid());
  const int users = getuid() == 0 ? 0 : CLONE_NEWUSER;
  if (unshare(users | CLONE_NEWPID | CLONE_NEWNS) != 0) stop("unshare");
  if (users == 0) return;
  put("/proc/self/setgroups", "deny");
  put("/proc/self/uid_map", user + " " + user + " 1");
  put("/proc/self/gid_map", group + " " + group + " 1");
}

void protect_files(const std::string& writable) {
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) stop("private mounts");
  if (mount(writable.c_str(), writable.c_str(), nullptr, MS_BIND, nullptr) != 0) stop("bind mount");
  const int kept = open(writable.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  mount_attr read_only{};
  read_only.attr_set = MOUNT_ATTR_RDONLY;
  if (syscall(SYS_mount_setattr, AT_FDCWD, "/", AT_RECURSIVE, &read_only, sizeof read_only) != 0)
    stop("read-only mounts");
  mount_attr writing{};
  writing.attr_clr = MOUNT_ATTR_RDONLY;
  if (syscall(SYS_mount_setattr, kept, "", AT_EMPTY_PATH, &writing, sizeof writing) != 0)
    stop("writable mount");
  if (mount("proc", "/proc", "proc", 0, nullptr) != 0) stop("/proc");
  for (const char* scratch : {"/tmp", "/dev/shm"})
    if (mount("tmpfs", scratch, "tmpfs", 0, "size=1g") != 0) stop(scratch);
}

[[noreturn]] void execute(const std::vector<std::string>& command,
                          const std::map<std::string, std::string>& environment) {
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  // A mutant that allocates for ever must not take the machine's memory.
  const rlimit memory{4ull << 30, 4ull << 30}, no_core{0, 0};
  setrlimit(RLIMIT_AS, &memory);
  setrlimit(RLIMIT_CORE, &no_core);
  if (chdir("/tmp") != 0 || access(command[0].c_str(), X_OK) != 0) stop(command[0].c_str());
  const int null = open("/dev/null", O_RDWR);
  for (const int fd : {0, 1, 2}) dup2(null, fd);
  std::vector<char*> arguments;
  for (const auto& a : command) arguments.push_back(const_cast<char*>(a.c_str()));
  arguments.push_back(nullptr);
  execv(arguments[0], arguments.data());
  stop(arguments[0]);
}

/// The first process of the namespace: with it, all others end.
[[noreturn]] void supervise(const std::vector<std::string>& command,
                            const std::map<std::string, std::string>& environment,
                            const std::string& writable) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  protect_files(writable);
  const pid_t test = fork();
  if (test < 0) stop("fork");
  if (test == 0) execute(command, environment);
  for (int status = 0;;) {
    const pid_t ended = wait(&status);
    if (ended == test) _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    if (ended < 0) _exit(1);
  }
}

}  // namespace

outcome run_alone(const std::vector<std::string>& command,
                  const std::map<std::string, std::string>& environment,
                  const std::string& writable, double limit_s) {
  const pid_t parent = fork();
  if (parent < 0) stop("fork");
  if (parent == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    enter_namespaces();
    const pid_t first = fork();
    if (first < 0) stop("fork");
    if (first == 0) supervise(command, environment, writable);
    int status = 0;
    waitpid(first, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  pollfd ended{static_cast<int>(syscall(SYS_pidfd_open, parent, 0)), POLLIN, 0};
  const bool hung = poll(&ended, 1, static_cast<int>(limit_s * 1000)) == 0;
  if (hung) kill(parent, SIGKILL);  // what it started dies with it
  close(ended.fd);
  int status = 0;
  waitpid(parent, &status, 0);
  if (hung) return outcome::hung;
  if (WIFEXITED(status) && WEXITSTATUS(status) == no_sandbox) std::exit(no_sandbox);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? outcome::passed : outcome::failed;
}

}  // namespace troupe::mutation_test
