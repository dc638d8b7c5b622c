#pragma once

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "runtime/host/log.hpp"

namespace troupe::actors {

/// Ends the process if its actors do not end in time: a policy of a controller may never return.
/// The journal's entries are durable once they are appended, so nothing is lost by it. Make it the
/// owner's first member: it watches until its destructor.
class end_watch {
 public:
  end_watch() = default;
  end_watch(const end_watch&) = delete;
  end_watch& operator=(const end_watch&) = delete;

  /// The owner begins to end; `exit_status`: of the process, if its actors do not.
  void begin(int exit_status) {
    thread_ = std::thread{[this, exit_status] {
      std::unique_lock lock{mutex_};
      if (wake_.wait_for(lock, std::chrono::duration<double>(patience_s), [this] { return over_; }))
        return;
      runtime::log(runtime::log_level::warn, "controller",
                   "the policy has not returned: the process ends without it");
      ::_exit(exit_status);
    }};
  }
  ~end_watch() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock{mutex_};
      over_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

 private:
  static constexpr double patience_s = 5;

  std::mutex mutex_;
  std::condition_variable wake_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace troupe::actors
