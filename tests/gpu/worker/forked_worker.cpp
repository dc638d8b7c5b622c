#include "gpu/worker/forked_worker.hpp"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <future>
#include <mutex>

#include <fmt/format.h>

#include "harness/source_dir.hpp"

namespace troupe::test {

namespace {

class child final : public gpu::worker_process {
 public:
  explicit child(int pid) : pid_{pid} {}
  ~child() override {
    kill();
    std::lock_guard lock{guard_};
    if (!end_) ::waitpid(pid_, nullptr, 0);
  }

  void kill() override {
    std::lock_guard lock{guard_};
    if (!end_) ::kill(pid_, SIGKILL);
  }
  std::optional<std::string> ended() override {
    std::lock_guard lock{guard_};
    int status = 0;
    if (!end_ && ::waitpid(pid_, &status, WNOHANG) == pid_)
      end_ = WIFSIGNALED(status) ? fmt::format("was killed by signal {}", WTERMSIG(status))
                                 : fmt::format("ended with status {}", WEXITSTATUS(status));
    return end_;
  }

 private:
  std::mutex guard_;
  int pid_;
  std::optional<std::string> end_;
};

}  // namespace

gpu::worker_starter forked(variables more, int* pid) {
  return [more = std::move(more),
          pid](const gpu::worker_launch& what) -> expected<std::unique_ptr<gpu::worker_process>> {
    // All memory that the child uses is there before the fork.
    std::vector<std::string> words{"env", "PYTHONPATH=" + source_dir() + "/python"};
    for (const auto& [name, value] : what.environment) words.push_back(name + "=" + value);
    for (const auto& [name, value] : more) words.push_back(name + "=" + value);
    words.insert(words.end(), what.command.begin(), what.command.end());
    std::vector<char*> arguments;
    for (auto& w : words) arguments.push_back(w.data());
    arguments.push_back(nullptr);
    const int child_pid = ::fork();
    if (child_pid == 0) {
      ::execv("/usr/bin/env", arguments.data());
      ::_exit(127);
    }
    if (child_pid < 0) return refuse(reason::kind::unavailable, "fork failed");
    if (pid != nullptr) *pid = child_pid;
    return std::make_unique<child>(child_pid);
  };
}

bool is_alive(int pid) {
  return ::kill(pid, 0) == 0 || errno != ESRCH;
}

expected<gpu::outcome> run(gpu::stage_device& d, gpu::operation o) {
  std::promise<expected<gpu::outcome>> made;
  d.submit(std::move(o), [&](expected<gpu::outcome> r) { made.set_value(std::move(r)); });
  return made.get_future().get();
}

expected<gpu::outcome> run(gpu::program_device& d, gpu::operations::norms n) {
  std::promise<expected<gpu::outcome>> made;
  d.submit_norms(std::move(n), [&](expected<gpu::outcome> r) { made.set_value(std::move(r)); });
  return made.get_future().get();
}

}  // namespace troupe::test
