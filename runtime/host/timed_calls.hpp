#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/host/real_clock.hpp"

namespace troupe::runtime {

/// Calls functions on a thread of its own, at their times: for state that only one thread may use.
/// Those that are not due yet when it ends are never called.
class timed_calls {
 public:
  timed_calls() : thread_{[this] { run(); }} {}
  ~timed_calls() {
    {
      const std::lock_guard hold{mutex_};
      over_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  timed_calls(const timed_calls&) = delete;

  /// On its clock; from any thread, also from a call. Equal times keep their order.
  void at(double at_s, std::function<void()> what) {
    {
      const std::lock_guard hold{mutex_};
      due_.emplace(at_s, std::move(what));
    }
    wake_.notify_one();
  }
  void soon(std::function<void()> what) { at(0, std::move(what)); }
  double now_s() const { return clock_.now_s(); }

  /// Calls it there, and waits. Not from a call.
  template <class F>
  auto ask(F&& what) {
    std::packaged_task<decltype(what())()> task{std::forward<F>(what)};
    auto answer = task.get_future();
    soon([&task] { task(); });
    return answer.get();
  }

 private:
  void run() {
    std::unique_lock hold{mutex_};
    while (!over_) {
      const double now = now_s();
      if (due_.empty()) {
        wake_.wait(hold);
      } else if (due_.begin()->first > now) {
        wake_.wait_for(hold, std::chrono::duration<double>(due_.begin()->first - now));
      } else {
        const auto what = std::move(due_.begin()->second);
        due_.erase(due_.begin());
        hold.unlock();
        what();
        hold.lock();
      }
    }
  }

  real_clock clock_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::multimap<double, std::function<void()>> due_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace troupe::runtime
