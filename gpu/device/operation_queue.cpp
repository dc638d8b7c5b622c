#include "gpu/device/operation_queue.hpp"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

namespace troupe::gpu {

/// Shared with the thread, which may come to an operation of a queue that is gone.
struct operation_queue::state {
  void run_next();

  std::function<void()> prepare;
  std::mutex guard;
  std::condition_variable ended;
  std::deque<std::pair<execution, done>> waiting;
  bool prepared = false, running = false, closing = false;
};

void operation_queue::state::run_next() {
  std::pair<execution, done> next;
  {
    std::lock_guard lock{guard};
    if (closing || waiting.empty()) return;
    next = std::move(waiting.front());
    waiting.pop_front();
    running = true;
  }
  // An operation's input is a job's: what it makes a library throw fails the operation, and not the
  // process. Its result may be delivered by then.
  const auto answered = std::make_shared<std::atomic<bool>>(false);
  const auto answer = [answered, d = next.second](expected<outcome> r) {
    if (!answered->exchange(true)) d(std::move(r));
  };
  try {
    if (!std::exchange(prepared, true)) prepare();
    next.first(answer);
  } catch (const std::bad_alloc&) {
    answer(refuse(reason::kind::out_of_memory, "the host has too little memory for the operation"));
  } catch (const std::exception& e) {
    answer(refuse(reason::kind::invalid, std::string{"the operation failed: "} + e.what()));
  }
  next = {};
  std::lock_guard lock{guard};
  running = false;
  ended.notify_all();
}

operation_queue::operation_queue(std::function<void()> prepare,
                                 std::shared_ptr<device_thread> thread)
    : state_{std::make_shared<state>()},
      thread_{thread ? std::move(thread) : std::make_shared<device_thread>()} {
  state_->prepare = std::move(prepare);
}

// Each submitted operation is answered exactly once, also those that never started.
operation_queue::~operation_queue() {
  join();
  for (auto& [e, d] : std::exchange(state_->waiting, {}))
    d(refuse(reason::kind::unavailable, "the device was closed before this operation started"));
}

// The closure holds the state and not the queue, which may be destroyed before its turn comes.
void operation_queue::submit(execution e, done d) {
  if (!d) d = [](const expected<outcome>&) {};
  {
    std::lock_guard lock{state_->guard};
    state_->waiting.emplace_back(std::move(e), std::move(d));
  }
  thread_->submit([s = state_] { s->run_next(); });
}

void operation_queue::close() {
  std::lock_guard lock{state_->guard};
  state_->closing = true;
}

// Waits for the operation that runs, not for those behind it: they are never started.
void operation_queue::join() {
  std::unique_lock lock{state_->guard};
  state_->closing = true;
  state_->ended.wait(lock, [this] { return !state_->running; });
}

}  // namespace troupe::gpu
