#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "gpu/device/device_executor.hpp"

namespace troupe::gpu {

/// Executes a CPU device's operations: a training's on one thread, in order, and between them a
/// guest's on another one, by the clock of gpu/device/clock.hpp. The operating system runs the
/// guest's thread only on processors that no other thread needs: it interrupts an operation of the
/// guest for one of the training, which therefore does not wait for its end, and for whatever
/// brings the training its next input. All calls may come from any thread.
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
  std::optional<double> guest_time_factor() override;

 private:
  struct operation {
    std::function<void()> what;
    bool interrupts_guest = false;  // one of the guest's was executed when it was submitted
    double submitted_s = 0;
  };
  using lock = std::unique_lock<std::mutex>;

  void train();
  void serve();
  void run_training(lock& held);
  bool try_guest(lock& held);
  bool run_guest(lock& held, const std::shared_ptr<guest_work>& guest);
  void change();
  bool training_is_ready() const { return !training_.empty() || training_runs_; }
  double trained_until_s(double now_s) const {
    return trained_s_ + (training_runs_ ? now_s - training_began_s_ : 0);
  }

  std::mutex guard_;
  std::condition_variable training_wake_, guest_wake_;
  std::deque<operation> training_;
  std::shared_ptr<guest_work> guest_;
  double idle_until_s_ = 0, guard_s_ = 0;
  bool training_runs_ = false, guest_runs_ = false, changed_ = false, closing_ = false;
  double training_began_s_ = 0, trained_s_ = 0;  // the present operation; all that have ended
  executor_counts counts_;
  std::thread training_thread_;
  std::thread guest_thread_;  // since the first guest
};

}  // namespace troupe::gpu
