#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "gpu/device/device_executor.hpp"

namespace troupe::gpu {

/// The thread of a device: executes a training's operations in order, and between them a guest's,
/// by the clock of gpu/device/clock.hpp. All calls may come from any thread.
class device_thread final : public device_executor {
 public:
  device_thread();
  /// Waits for the operation that has begun; others are forgotten.
  ~device_thread() override;
  device_thread(const device_thread&) = delete;
  device_thread& operator=(const device_thread&) = delete;

  /// An operation of the training: never blocks, and ends what idle_for() said. `what` must not
  /// throw.
  void submit(std::function<void()> what);

  void idle_for(double s) override;
  double busy() override;
  void set_guard(double s) override;
  void lend(std::shared_ptr<guest_work> to) override;
  void wake() override;
  executor_counts take_counts() override;

 private:
  struct operation {
    std::function<void()> what;
    bool behind_guest = false;  // one of the guest's was executed when it was submitted
    double submitted_s = 0;
  };
  using lock = std::unique_lock<std::mutex>;

  void work();
  void run_training(lock& held);
  bool run_guest(lock& held);
  void change();

  std::mutex guard_;
  std::condition_variable wake_;
  std::deque<operation> training_;
  std::shared_ptr<guest_work> guest_;
  double idle_until_s_ = 0, guard_s_ = 0;
  bool guest_runs_ = false, changed_ = false, closing_ = false;
  executor_counts counts_;
  std::thread thread_;
};

}  // namespace troupe::gpu
