#pragma once

#include <pybind11/embed.h>

#include <condition_variable>
#include <mutex>
#include <thread>

namespace troupe::planners::python {

/// Ends a call of Python code that takes longer than it may: KeyboardInterrupt is raised in it,
/// which `except Exception` does not catch, again and again until the call returns. A call that
/// never comes back to the interpreter, as of a library, is not ended.
class call_limit {
 public:
  explicit call_limit(double limit_s) : limit_s_{limit_s} {}
  ~call_limit();
  call_limit(const call_limit&) = delete;
  call_limit& operator=(const call_limit&) = delete;

  /// For the calling thread, which holds the interpreter's lock, as at end().
  void begin();
  /// True: the call has been interrupted.
  bool end();

  double limit_s() const { return limit_s_; }

 private:
  void watch();
  void interrupt(unsigned long call);

  double limit_s_;
  std::mutex mutex_;  // taken with the interpreter's lock, or without ever waiting for that
  std::condition_variable wake_;
  std::thread thread_;                // since the first call
  unsigned long thread_of_call_ = 0;  // as Python numbers threads
  unsigned long call_ = 0;            // the present one's number, or the last one's
  bool runs_ = false, interrupted_ = false, closing_ = false;
};

}  // namespace troupe::planners::python
