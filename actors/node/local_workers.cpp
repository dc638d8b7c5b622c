#include "actors/node/local_workers.hpp"

#include <iterator>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "actors/node/exit_status.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::actors {

using runtime::kept_end;

/// A worker's process, which its stage and the node watch from threads of their own.
class kept_worker {
 public:
  explicit kept_worker(std::unique_ptr<runtime::kept_program> program)
      : program_{std::move(program)} {}

  void renew(double until_s) {
    const std::lock_guard hold{mutex_};
    program_->renew(until_s);
  }
  void terminate(double grace_s) {
    const std::lock_guard hold{mutex_};
    program_->terminate(grace_s, grace_s);
  }
  void kill() {
    const std::lock_guard hold{mutex_};
    program_->kill();
  }
  std::optional<std::string> ended() {
    const std::lock_guard hold{mutex_};
    if (ended_) return ended_;
    if (const auto end = program_->poll()) ended_ = text_of(*end);
    return ended_;
  }

 private:
  static std::string text_of(const kept_end& end) {
    switch (end.what) {
      case kept_end::how::exited:
        return fmt::format("ended with exit status {}{}", end.status, signal_of(end.status));
      case kept_end::how::not_started:
      case kept_end::how::no_room:
        return "could not be started: " + end.why;
      case kept_end::how::lease_expired:
        return "was killed: no contact with the controller for more than a lease";
      case kept_end::how::lost:
        break;
    }
    return "was killed with its keeper";
  }

  std::mutex mutex_;
  std::unique_ptr<runtime::kept_program> program_;
  std::optional<std::string> ended_;
};

namespace {

constexpr double grace_s = 2;  // of a worker that was asked to stop

/// The stage's end of it. The process outlives it for the grace, with the node's list as its owner.
class handle final : public gpu::worker_process {
 public:
  explicit handle(std::shared_ptr<kept_worker> worker) : worker_{std::move(worker)} {}
  ~handle() override { worker_->terminate(grace_s); }

  void kill() override { worker_->kill(); }
  std::optional<std::string> ended() override { return worker_->ended(); }

 private:
  std::shared_ptr<kept_worker> worker_;
};

}  // namespace

expected<std::unique_ptr<gpu::worker_process>> local_workers::start(
    runtime::keeper_server& keepers, std::mutex& mutex, const gpu::worker_launch& what,
    std::vector<std::pair<std::string, std::string>> environment, std::string directory,
    std::string output) {
  runtime::process_options o;
  o.command = what.command;
  o.environment = std::move(environment);
  o.environment.insert(o.environment.end(), what.environment.begin(), what.environment.end());
  o.directory = std::move(directory);
  o.output = std::move(output);
  const std::lock_guard hold{mutex_};
  auto started = [&] {
    const std::lock_guard one_at_a_time{mutex};
    return keepers.run(o, until_s_);
  }();
  if (!started) return refuse(started.error());
  running_.push_back(std::make_shared<kept_worker>(std::move(*started)));
  return std::make_unique<handle>(running_.back());
}

void local_workers::renew(double until_s) {
  const std::lock_guard hold{mutex_};
  until_s_ = until_s;
  for (auto& w : running_) w->renew(until_s);
}

// The last owner's destructor waits for the process's end, which has happened by then.
void local_workers::poll() {
  const std::lock_guard hold{mutex_};
  std::erase_if(running_, [](const auto& w) { return w->ended().has_value(); });
}

}  // namespace troupe::actors
