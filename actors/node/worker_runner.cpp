#include "actors/node/worker_runner.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "messages/base/refuse.hpp"

namespace troupe::actors {

namespace {

using runtime::kept_end;

constexpr double stop_s = 2;  // what a worker that was asked to stop may take

std::string sentence_of(const kept_end& end) {
  if (end.what == kept_end::how::lease_expired) return "was killed, as its lease was not renewed";
  if (end.what == kept_end::how::lost) return "was killed with its keeper";
  if (end.what != kept_end::how::exited) return "could not start: " + end.why;
  if (end.status <= 128) return fmt::format("ended with status {}", end.status);
  const char* name = ::sigabbrev_np(end.status - 128);
  return fmt::format("was killed by signal {}{}", end.status - 128,
                     name ? fmt::format(" (SIG{})", name) : "");
}

}  // namespace

/// Known to a worker's stage and to the node.
struct worker_state {
  std::mutex guard;
  bool killed = false;    // it is to be
  bool released = false;  // the stage has ended, and with it whoever would read this
  std::optional<std::string> ended;
};

struct worker_runner::worker {
  lease_id lease = 0;
  gpu::worker_launch what;
  std::shared_ptr<worker_state> state;
  std::unique_ptr<runtime::kept_program> program;  // null: not started
  bool stopping = false;

  bool is_ending() const {
    std::lock_guard lock{state->guard};
    return program && (state->killed || state->released);
  }
};

/// Outlives the runner in the hands of stages.
struct worker_runner::inbox {
  std::mutex guard;
  std::vector<worker> started;
  std::function<void()> wake;
  bool closed = false;

  void call() {
    std::lock_guard lock{guard};
    if (wake && !closed) wake();
  }
};

namespace {

template <class Inbox>
class stage_worker final : public gpu::worker_process {
 public:
  stage_worker(std::shared_ptr<worker_state> state, std::shared_ptr<Inbox> inbox)
      : state_{std::move(state)}, inbox_{std::move(inbox)} {}
  ~stage_worker() override { set(&worker_state::released); }

  void kill() override { set(&worker_state::killed); }
  std::optional<std::string> ended() override {
    std::lock_guard lock{state_->guard};
    return state_->ended;
  }

 private:
  void set(bool worker_state::*what) {
    {
      std::lock_guard lock{state_->guard};
      (*state_).*what = true;
    }
    inbox_->call();
  }

  std::shared_ptr<worker_state> state_;
  std::shared_ptr<Inbox> inbox_;
};

}  // namespace

worker_runner::worker_runner() : inbox_{std::make_shared<inbox>()} {}

worker_runner::~worker_runner() {
  std::lock_guard lock{inbox_->guard};
  inbox_->closed = true;
}

void worker_runner::watch(std::function<void()> wake) {
  std::lock_guard lock{inbox_->guard};
  inbox_->wake = std::move(wake);
}

gpu::worker_starter worker_runner::starter(lease_id lease) {
  return [lease, to = inbox_](
             const gpu::worker_launch& what) -> expected<std::unique_ptr<gpu::worker_process>> {
    auto state = std::make_shared<worker_state>();
    {
      std::lock_guard lock{to->guard};
      if (to->closed) return refuse(reason::kind::unavailable, "the node ends");
      to->started.push_back({lease, what, state, nullptr, false});
    }
    auto process = std::make_unique<stage_worker<inbox>>(std::move(state), to);
    to->call();
    return process;
  };
}

void worker_runner::end(lease_id lease) {
  const auto kill = [&](auto& workers) {
    for (auto& w : workers) {
      if (w.lease != lease) continue;
      std::lock_guard lock{w.state->guard};
      w.state->killed = true;
    }
  };
  kill(workers_);
  std::lock_guard lock{inbox_->guard};
  kill(inbox_->started);
  if (inbox_->wake) inbox_->wake();
}

std::set<lease_id> worker_runner::leases() const {
  std::set<lease_id> all;
  for (const auto& w : workers_) all.insert(w.lease);
  return all;
}

void worker_runner::renew(double until_s) {
  for (auto& w : workers_)
    if (w.program) w.program->renew(until_s);
}

void worker_runner::poll(const start& run, const std::function<void(int)>& on_start) {
  {
    std::lock_guard lock{inbox_->guard};
    for (auto& w : std::exchange(inbox_->started, {})) workers_.push_back(std::move(w));
  }
  end_some();
  // The memory of a device that a worker leaves is free when the worker has ended.
  if (std::ranges::any_of(workers_, [](const auto& w) { return w.is_ending(); })) return;
  for (auto& w : workers_) {
    if (w.program) continue;
    if (auto started = run(w.lease, w.what)) {
      w.program = std::move(*started);
      on_start(w.program->events());
    } else {
      std::lock_guard lock{w.state->guard};
      w.state->ended = "could not start: " + started.error().text;
    }
  }
}

void worker_runner::end_some() {
  for (auto it = workers_.begin(); it != workers_.end();) {
    auto& w = *it;
    const auto state = w.state;  // outlives the lock
    std::lock_guard lock{state->guard};
    if (w.program && state->killed) w.program->kill();
    if (w.program && state->released && !std::exchange(w.stopping, true))
      w.program->terminate(stop_s, stop_s);
    if (const auto end = w.program ? w.program->poll() : std::nullopt)
      state->ended = sentence_of(*end);
    else if (!w.program && !state->ended && (state->killed || state->released))
      state->ended = "was not started";
    it = state->ended ? workers_.erase(it) : std::next(it);
  }
}

}  // namespace troupe::actors
