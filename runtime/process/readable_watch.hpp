#pragma once

#include <functional>
#include <thread>

namespace troupe::runtime {

/// Calls a function, on a thread of its own, soon after one of its descriptors became readable or
/// was closed by the other end: once for each time that this happens, so whoever is called reads
/// all there is. For many descriptors that seldom have something.
class readable_watch {
 public:
  explicit readable_watch(std::function<void()> on_readable);
  /// No call is made after this.
  ~readable_watch();
  readable_watch(const readable_watch&) = delete;

  /// Closing the descriptor takes it out again.
  void add(int descriptor);

 private:
  void run() const;

  std::function<void()> on_readable_;
  int poll_ = -1, stop_ = -1;
  std::thread thread_;
};

}  // namespace troupe::runtime
