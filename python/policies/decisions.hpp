#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <vector>

#include "python/policies/call.hpp"

namespace troupe::planners::python {

/// The decisions of what decide() returned: a generator, which runs here, or another iterable. Each
/// is counted before the next is asked for. `file` is named in complaints. Throws policy_failure,
/// and what Python raises.
std::vector<decision> read_decisions(const pybind11::object& returned, call& now,
                                     const std::string& file);

}  // namespace troupe::planners::python
