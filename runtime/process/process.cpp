#include "runtime/process/process.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <queue>
#include <thread>

namespace troupe::runtime {
namespace {

// The parent-death signal is sent when the *thread* that forked the child ends. So all children are
// forked by one thread that never ends.
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
  // A fork copies only the calling thread.
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

}  // namespace

expected<std::unique_ptr<process>> process::start(const process_options& o) {
  if (o.command.empty()) return refuse(reason::kind::invalid, "an empty command cannot be run");
  std::unique_ptr<process> p{new process};
  if (auto ok = p->launch(o); !ok) return refuse(ok.error());
  return p;
}

// Two pipes: `go` releases the child when its group is known, `report` brings the reason of a
// failed start, or its end when exec has closed it.
expected<void> process::launch(const process_options& o) {
  const auto token = fresh_group_token();
  const program_plan plan{o, token};
  pipe_ends go, report;
  start_failure f{start_failure::step::fork, 0};
  const auto cannot = [&](int why) {
    f.why = why;
    return refuse(reason::kind::unavailable, describe(f, o));
  };
  if (!go.open() || !report.open()) return cannot(errno);
  const auto pid = spawner::run([&] {
    const auto child = ::fork();
    if (child == 0) {
      go.ends[1].close();
      plan.become(go.ends[0], report.ends[1]);
    }
    return child < 0 ? -errno : child;
  });
  if (pid < 0) return cannot(-pid);
  ::setpgid(pid, pid);  // the child does the same: whichever is first
  group_ = describe_group(pid, token).value_or(process_group{pid, 0, "", token});
  go.ends[0].close();
  report.ends[1].close();
  if (!go.write_one()) return cannot(errno);
  if (::read(report.ends[0], &f, sizeof f) == static_cast<ssize_t>(sizeof f))
    return refuse(
        f.where == start_failure::step::program ? reason::kind::invalid : reason::kind::unavailable,
        describe(f, o));
  return {};
}

// The process has ended once its group has: its descendants could otherwise hold the GPUs that the
// next one gets.
std::optional<int> process::poll() {
  if (status_) return status_;
  // The leader is reaped last: until then its id, and so the group's, cannot be reused.
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(group_.leader), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0)
    return {};
  ::kill(-group_.leader, SIGKILL);
  if (kill_members(group_) > 0) return {};
  ::waitpid(group_.leader, nullptr, 0);
  status_ = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
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
