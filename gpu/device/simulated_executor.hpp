#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "gpu/device/device_executor.hpp"

namespace troupe::gpu {

/// The executor of a simulated device: in one thread, by the world's clock. The operations of a
/// run that end before the training's next one are one event.
class simulated_executor final : public device_executor {
 public:
  using clock = std::function<double()>;
  /// Calls a function after a number of seconds.
  using timer = std::function<void(double, std::function<void()>)>;

  simulated_executor(clock now, timer after) : now_{std::move(now)}, after_{std::move(after)} {}
  simulated_executor(const simulated_executor&) = delete;
  simulated_executor& operator=(const simulated_executor&) = delete;

  void idle_for(double s) override;
  double busy() override;
  void set_guard(double s) override;
  void lend(std::shared_ptr<guest_work> to) override;
  void wake() override;
  executor_counts take_counts() override {
    counts_.taken_s = now_();
    return std::exchange(counts_, {});
  }

 private:
  void begin();
  void shorten();
  void set_timer(double after_s);
  void end(std::uint64_t number);
  void complete(std::uint32_t count);

  clock now_;
  timer after_;
  std::shared_ptr<guest_work> guest_;
  double idle_until_s_ = 0, guard_s_ = 0;
  // The operations under way: so many of each_s, from began_s on.
  std::uint32_t count_ = 0;
  double each_s_ = 0, began_s_ = 0;
  std::uint32_t prompt_ = 0;
  std::uint64_t number_ = 0;  // of the timer that counts
  executor_counts counts_;
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);  // for late timers
};

}  // namespace troupe::gpu
