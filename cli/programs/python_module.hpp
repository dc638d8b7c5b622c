#pragma once

#include <functional>
#include <string>
#include <vector>

#include "messages/base/reason.hpp"

namespace troupe::cli {

struct ended_module {
  int status = 0;
  std::string last_line;  // of what it printed: of a traceback its reason
};

/// Runs a module of the package `troupe` with an interpreter (empty: this machine's) in a
/// directory, to its end. Fails, with the interpreter's name, if it cannot be run. `watch` gets
/// the last line that it has printed, a few times a second.
expected<ended_module> run_python_module(const std::string& module, const std::string& interpreter,
                                         const std::vector<std::string>& arguments,
                                         const std::string& directory,
                                         const std::function<void(const std::string&)>& watch = {});

}  // namespace troupe::cli
