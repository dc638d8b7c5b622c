#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <variant>

#include "gpu/device/device_thread.hpp"
#include "gpu/device/stage_device.hpp"

namespace troupe::gpu {

/// A stage's operations, one after another, on the thread of its device. Everything that they use
/// must outlive it: make it the owner's last member, or close it first.
class operation_queue {
 public:
  using done = stage_device::done;
  /// Executes an operation, and delivers its result now or later.
  using execution = std::function<void(done)>;

  /// `prepare`: called first, on the thread. `thread`: the device's, which may have a guest; null:
  /// one of its own.
  explicit operation_queue(
      std::function<void()> prepare = [] {}, std::shared_ptr<device_thread> thread = nullptr);
  /// Closes, and fails all operations that have not begun.
  ~operation_queue();
  operation_queue(const operation_queue&) = delete;
  operation_queue& operator=(const operation_queue&) = delete;

  /// Never blocks. `d` may be empty.
  void submit(execution e, done d);
  /// Calls `execute(what, o, done)`, where `what` is the operation as the struct of its kind.
  template <class Execute>
  void submit(operation o, done d, Execute execute) {
    submit(
        [o = std::move(o), execute](const done& completed) {
          std::visit([&](const auto& what) { execute(what, o, completed); }, o.what);
        },
        std::move(d));
  }
  /// No operation begins after this. Does not wait for one that has begun.
  void close();
  /// Closes, and waits for the operation that has begun.
  void join();

 private:
  struct state;

  std::shared_ptr<state> state_;
  std::shared_ptr<device_thread> thread_;
};

}  // namespace troupe::gpu
