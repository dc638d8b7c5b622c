#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "gpu/device/device_executor.hpp"

namespace troupe::actors {

/// Lends a device to one guest, whose model may still be loading when the loan ends: the loan then
/// never begins, and the device's next guest keeps it. All calls may come from any thread.
class device_loan {
 public:
  explicit device_loan(std::shared_ptr<gpu::device_executor> device) : device_{std::move(device)} {}

  /// No effect once it has ended.
  void begin(std::shared_ptr<gpu::guest_work> guest) {
    const std::lock_guard lock{guard_};
    if (ended_) return;
    begun_ = true;
    device_->lend(std::move(guest));
  }
  void end() {
    const std::lock_guard lock{guard_};
    ended_ = true;
    if (std::exchange(begun_, false)) device_->lend(nullptr);
  }

 private:
  const std::shared_ptr<gpu::device_executor> device_;
  std::mutex guard_;
  bool begun_ = false, ended_ = false;
};

}  // namespace troupe::actors
