#pragma once

#include <string>

#include "messages/job.hpp"
#include "messages/reason.hpp"

namespace troupe::formats {

/// A job that no file has: its keys and values as JSON. `name` stands for a file's in complaints,
/// and its paths are seen from the current directory.
expected<job_spec> parse_job(const std::string& name, const std::string& json);

}  // namespace troupe::formats
