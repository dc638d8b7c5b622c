#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "gpu/device/stage_device.hpp"

namespace troupe::gpu {

/// A device's thread, which executes one operation after another. Everything that `run` uses must
/// outlive it: make it the owner's last member, or close it first.
class operation_queue {
 public:
  using done = stage_device::done;

  /// `run`: executes an operation, and delivers its result now or later. `prepare`: called first,
  /// on the thread.
  explicit operation_queue(
      std::function<void(const operation&, done)> run, std::function<void()> prepare = [] {});
  /// Closes, and fails all operations that have not begun.
  ~operation_queue();
  operation_queue(const operation_queue&) = delete;
  operation_queue& operator=(const operation_queue&) = delete;

  /// Never blocks. `d` may be empty.
  void submit(operation o, done d);
  /// No operation begins after this. Does not wait for one that has begun.
  void close();
  /// Closes, and waits for the operation that has begun.
  void join();

 private:
  void work();

  const std::function<void(const operation&, done)> run_;
  const std::function<void()> prepare_;
  std::mutex guard_;
  std::condition_variable wake_;
  std::deque<std::pair<operation, done>> waiting_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace troupe::gpu
