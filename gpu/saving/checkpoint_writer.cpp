#include "gpu/saving/checkpoint_writer.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace troupe::gpu {

namespace {

class writer_thread final : public checkpoint_writer {
 public:
  writer_thread() : thread_{[this] { run(); }} {}
  ~writer_thread() override {
    {
      const std::lock_guard lock{guard_};
      closing_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  void submit(work w, done d) override {
    {
      const std::lock_guard lock{guard_};
      waiting_.emplace_back(std::move(w), std::move(d));
    }
    wake_.notify_one();
  }

 private:
  void run() {
    std::unique_lock lock{guard_};
    while (true) {
      wake_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
      if (closing_) return;
      {
        const auto next = std::move(waiting_.front());
        waiting_.pop_front();
        lock.unlock();
        next.second(next.first());
      }  // the copy's memory is free before the next one is waited for
      lock.lock();
    }
  }

  std::mutex guard_;
  std::condition_variable wake_;
  std::deque<std::pair<work, done>> waiting_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace

std::shared_ptr<checkpoint_writer> make_checkpoint_writer() {
  return std::make_shared<writer_thread>();
}

}  // namespace troupe::gpu
