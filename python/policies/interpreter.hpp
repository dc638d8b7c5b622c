#pragma once

#include <pybind11/embed.h>

#include <string>

#include "planners/policy/checked_policy.hpp"

namespace troupe::planners::python {

namespace py = pybind11;

/// Starts the process's one interpreter at the first call. It never ends: policies are destroyed
/// while the process exits, too. Throws policy_failure.
void start_interpreter();

/// While it lives, this thread runs Python. Policies are called from any thread.
class interpreter_lock {
 public:
  interpreter_lock() : state_{PyGILState_Ensure()} {}
  ~interpreter_lock() { PyGILState_Release(state_); }
  interpreter_lock(const interpreter_lock&) = delete;
  interpreter_lock& operator=(const interpreter_lock&) = delete;

 private:
  PyGILState_STATE state_;
};

/// "mine.py:12: ZeroDivisionError: division by zero", with the last line of `file` that was
/// running. Prints the traceback to standard error.
policy_failure failure_of(const py::error_already_set& error, const std::string& file);

}  // namespace troupe::planners::python
