#pragma once

#include <string>
#include <string_view>

#include "messages/base/shown.hpp"

// A problem of a job with the key that has it, and names that are valid.

namespace troupe::admission {

using troupe::shown;

/// Valid names of hosts and jobs: letters, digits, '.', '_' and '-', at most 64, not beginning with
/// '-' or '.'.
bool is_name(std::string_view name);
/// A valid name of an environment variable, at most 256 bytes.
bool is_variable(std::string_view name);

/// An invalid field of a job.
struct objection {
  std::string key;      // the top-level key of the job file
  std::string problem;  // a sentence without the key, e.g. "found 0, expected ..."
};

}  // namespace troupe::admission
