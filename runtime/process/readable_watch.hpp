#pragma once

#include <functional>
#include <thread>

#include "messages/base/descriptor.hpp"

namespace troupe::runtime {

/// Calls a function, on its own thread, soon after one of its descriptors became readable or was
/// closed by the other end. Edge-triggered: the function must read everything. For many descriptors
/// with little traffic.
class readable_watch {
 public:
  explicit readable_watch(std::function<void()> on_readable);
  /// No call is made after this returns.
  ~readable_watch();
  readable_watch(const readable_watch&) = delete;

  /// Closing the descriptor removes it.
  void add(int descriptor);

 private:
  void run() const;

  std::function<void()> on_readable_;
  descriptor poll_, stop_;
  std::thread thread_;
};

}  // namespace troupe::runtime
