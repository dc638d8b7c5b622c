#pragma once

#include <string>

#include "messages/base/reason.hpp"
#include "messages/domain/job.hpp"

namespace troupe::formats {

/// A job without a file: keys and values as JSON. `name` takes the file's place in errors; paths
/// are relative to the current directory.
expected<job_spec> parse_job(const std::string& name, const std::string& json);

}  // namespace troupe::formats
