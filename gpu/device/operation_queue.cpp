#include "gpu/device/operation_queue.hpp"

namespace troupe::gpu {

operation_queue::operation_queue(std::function<void(const operation&, done)> run,
                                 std::function<void()> prepare)
    : run_{std::move(run)}, prepare_{std::move(prepare)}, thread_{[this] { work(); }} {}

operation_queue::~operation_queue() {
  join();
  for (auto& [o, d] : waiting_)
    d(refuse(reason::kind::unavailable, "the device was closed before this operation started"));
}

void operation_queue::submit(operation o, done d) {
  if (!d) d = [](const expected<outcome>&) {};
  {
    std::lock_guard lock{guard_};
    waiting_.emplace_back(std::move(o), std::move(d));
  }
  wake_.notify_one();
}

void operation_queue::close() {
  {
    std::lock_guard lock{guard_};
    closing_ = true;
  }
  wake_.notify_one();
}

void operation_queue::join() {
  close();
  if (thread_.joinable()) thread_.join();
}

void operation_queue::work() {
  prepare_();
  for (;;) {
    std::pair<operation, done> next;
    {
      std::unique_lock lock{guard_};
      wake_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
      if (closing_) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    run_(next.first, std::move(next.second));
  }
}

}  // namespace troupe::gpu
