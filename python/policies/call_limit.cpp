#include "python/policies/call_limit.hpp"

#include <chrono>

#include "python/policies/interpreter.hpp"

namespace troupe::planners::python {

call_limit::~call_limit() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock{mutex_};
    closing_ = true;
  }
  wake_.notify_all();
  // It may be about to take the interpreter's lock.
  const py::gil_scoped_release others;
  thread_.join();
}

void call_limit::begin() {
  const std::lock_guard lock{mutex_};
  if (!thread_.joinable()) thread_ = std::thread{[this] { watch(); }};
  thread_of_call_ = PyThread_get_thread_ident();
  ++call_;
  runs_ = true;
  interrupted_ = false;
  wake_.notify_all();
}

bool call_limit::end() {
  const std::lock_guard lock{mutex_};
  runs_ = false;
  // One that was raised and not delivered yet would end the next call.
  if (interrupted_) PyThreadState_SetAsyncExc(thread_of_call_, nullptr);
  wake_.notify_all();
  return interrupted_;
}

void call_limit::watch() {
  constexpr double again_s = 0.1;
  std::unique_lock lock{mutex_};
  while (!closing_) {
    wake_.wait(lock, [this] { return closing_ || runs_; });
    const auto call = call_;
    double wait_s = limit_s_;
    const auto is_over = [&] { return closing_ || !runs_ || call_ != call; };
    while (!is_over()) {
      if (wake_.wait_for(lock, std::chrono::duration<double>(wait_s), is_over)) break;
      wait_s = again_s;
      lock.unlock();
      interrupt(call);
      lock.lock();
    }
  }
}

/// The interpreter's lock comes first, as for a call.
void call_limit::interrupt(unsigned long call) {
  const interpreter_lock interpreter;
  const std::lock_guard lock{mutex_};
  if (!runs_ || call_ != call) return;
  interrupted_ = true;
  PyThreadState_SetAsyncExc(thread_of_call_, PyExc_KeyboardInterrupt);
}

}  // namespace troupe::planners::python
