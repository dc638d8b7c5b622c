#include "runtime/process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <future>
#include <mutex>
#include <queue>
#include <thread>

#include <fmt/format.h>

extern char** environ;

namespace troupe::runtime {
namespace {

// The kernel kills the child when the *thread* that started it ends. So all are started by one
// thread that never does.
class spawner {
 public:
  static pid_t run(std::function<pid_t()> f) {
    auto* only = of_this_process();
    std::packaged_task<pid_t()> task{std::move(f)};
    auto result = task.get_future();
    {
      const std::lock_guard guard{only->mutex_};
      only->tasks_.push(std::move(task));
    }
    only->there_is_one_.notify_one();
    return result.get();
  }

 private:
  // Threads do not come along through a fork.
  static spawner* of_this_process() {
    static std::mutex mutex;
    static spawner* only = nullptr;
    static pid_t owner = 0;
    const std::lock_guard guard{mutex};
    if (owner != ::getpid()) only = new spawner;
    owner = ::getpid();
    return only;
  }

  spawner() {
    std::thread{[this] {
      for (;;) {
        std::unique_lock guard{mutex_};
        there_is_one_.wait(guard, [this] { return !tasks_.empty(); });
        auto task = std::move(tasks_.front());
        tasks_.pop();
        guard.unlock();
        task();
      }
    }}.detach();
  }

  std::mutex mutex_;
  std::condition_variable there_is_one_;
  std::queue<std::packaged_task<pid_t()>> tasks_;
};

enum class stage : int { group, directory, output, program };
struct failure {
  stage where = stage::group;
  int why = 0;
};

struct pipe_ends {
  int ends[2] = {-1, -1};
  bool open() { return ::pipe2(ends, O_CLOEXEC) == 0; }
  void close(int i) {
    if (ends[i] >= 0) ::close(ends[i]);
    ends[i] = -1;
  }
  ~pipe_ends() {
    close(0);
    close(1);
  }
};

// Everything the child needs, made before there is a child: between fork and exec it may not
// allocate.
struct launch_plan {
  std::vector<std::string> words, variables;
  std::vector<char*> arguments, environment;
  const char* directory = nullptr;
  const char* output = "/dev/null";
  pid_t parent = 0;
};

launch_plan prepare(const process_options& o, const std::string& token) {
  launch_plan p;
  p.words = o.command;
  auto set = o.environment;
  set.emplace_back(group_token_variable, token);
  const auto is_set = [&](const std::string& entry) {
    for (const auto& [name, value] : set)
      if (entry.compare(0, name.size() + 1, name + "=") == 0) return true;
    return false;
  };
  for (char** e = environ; *e != nullptr; ++e)
    if (!is_set(*e)) p.variables.emplace_back(*e);
  for (const auto& [name, value] : set) p.variables.push_back(name + "=" + value);
  for (auto& w : p.words) p.arguments.push_back(w.data());
  for (auto& v : p.variables) p.environment.push_back(v.data());
  p.arguments.push_back(nullptr);
  p.environment.push_back(nullptr);
  if (!o.directory.empty()) p.directory = o.directory.c_str();
  if (!o.output.empty()) p.output = o.output.c_str();
  p.parent = ::getpid();
  return p;
}

[[noreturn]] void give_up(int to, stage where) {
  const failure f{where, errno};
  [[maybe_unused]] const auto written = ::write(to, &f, sizeof f);
  ::_exit(127);
}

// In the child. Only calls that signal-safety(7) allows.
[[noreturn]] void become(const launch_plan& p, int go, int report) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != p.parent) ::_exit(127);  // died before the line above
  if (::setpgid(0, 0) != 0) give_up(report, stage::group);
  for (int s = 1; s < NSIG; ++s) ::signal(s, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  char byte = 0;
  if (::read(go, &byte, 1) != 1) ::_exit(127);  // not until the group is on record
  const int in = ::open("/dev/null", O_RDONLY);
  const int out = ::open(p.output, O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (in < 0 || out < 0) give_up(report, stage::output);
  if (::dup2(in, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(out, 2) < 0) give_up(report, stage::output);
  if (p.directory != nullptr && ::chdir(p.directory) != 0) give_up(report, stage::directory);
  ::close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
  ::execvpe(p.arguments.front(), p.arguments.data(), p.environment.data());
  give_up(report, stage::program);
}

std::string describe(const failure& f, const process_options& o) {
  switch (f.where) {
    case stage::directory:
      return fmt::format("cannot run in {}: {}", o.directory, std::strerror(f.why));
    case stage::output:
      return fmt::format("cannot write to {}: {}", o.output, std::strerror(f.why));
    case stage::program:
      return fmt::format("cannot run {}: {}", o.command.front(), std::strerror(f.why));
    case stage::group:
      break;
  }
  return fmt::format("cannot make a process group: {}", std::strerror(f.why));
}

}  // namespace

expected<std::unique_ptr<process>> process::start(const process_options& o) {
  if (o.command.empty()) return refuse(reason::kind::invalid, "an empty command cannot be run");
  std::unique_ptr<process> p{new process};
  if (auto ok = p->launch(o); !ok) return tl::unexpected{ok.error()};
  return p;
}

expected<void> process::launch(const process_options& o) {
  const auto token = fresh_group_token();
  const auto plan = prepare(o, token);
  pipe_ends go, report;
  if (!go.open() || !report.open())
    return refuse(reason::kind::unavailable,
                  fmt::format("cannot start a process: {}", std::strerror(errno)));
  const auto pid = spawner::run([&] {
    const auto child = ::fork();
    if (child == 0) {
      go.close(1);
      become(plan, go.ends[0], report.ends[1]);
    }
    return child < 0 ? -errno : child;
  });
  if (pid < 0)
    return refuse(reason::kind::unavailable,
                  fmt::format("cannot start a process: {}", std::strerror(-pid)));
  ::setpgid(pid, pid);  // the child does the same; whoever is first
  group_ = describe_group(pid, token).value_or(process_group{pid, 0, "", token});
  records_ = o.records;
  if (!records_.empty()) {
    if (auto ok = record_group(records_, group_); !ok) return ok;
  }
  go.close(0);
  report.close(1);
  if (::write(go.ends[1], "g", 1) != 1)
    return refuse(reason::kind::unavailable, "the new process is gone at once");
  failure f;
  if (::read(report.ends[0], &f, sizeof f) == static_cast<ssize_t>(sizeof f))
    return refuse(f.where == stage::program ? reason::kind::invalid : reason::kind::unavailable,
                  describe(f, o));
  return {};
}

std::optional<int> process::poll() {
  if (status_) return status_;
  // The leader is collected last: until then its number, and so the group's, cannot be used again.
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(group_.leader), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0)
    return {};
  ::kill(-group_.leader, SIGKILL);
  if (kill_members(group_) > 0) return {};
  ::waitpid(group_.leader, nullptr, 0);
  status_ = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
  if (!records_.empty()) forget_group(records_, group_);
  return status_;
}

void process::terminate() {
  if (!status_) ::kill(-group_.leader, SIGTERM);
}

void process::kill() {
  if (!status_) ::kill(-group_.leader, SIGKILL);
}

process::~process() {
  if (group_.leader == 0) return;
  kill();
  while (!poll()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace troupe::runtime
