#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "gpu/device/stage_device.hpp"

namespace troupe::gpu {

/// A device's thread, which takes one operation after another. Whatever `run` uses outlives it: it
/// is its owner's last member, or is joined before the others go.
class operation_queue {
 public:
  using done = stage_device::done;

  /// `run`: does an operation, and tells now or later what came of it. `prepare`: what the thread
  /// does before all others.
  explicit operation_queue(
      std::function<void(const operation&, done)> run, std::function<void()> prepare = [] {});
  /// Joins, and refuses what has not had its turn.
  ~operation_queue();
  operation_queue(const operation_queue&) = delete;
  operation_queue& operator=(const operation_queue&) = delete;

  /// Never blocks. `d` may be empty.
  void submit(operation o, done d);
  /// From now on no operation begins. Does not wait for one that has begun.
  void close();
  /// Closes, and waits for one that has begun.
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
