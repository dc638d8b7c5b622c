#pragma once

#include <filesystem>

#include "formats/parse/reader.hpp"
#include "messages/job.hpp"

namespace troupe::formats {

/// A job's `train:`, `slots:` and `pipeline:`. Relative paths in `train:` are made absolute: the
/// first existing file in the job's directory, the current one or the shipped files; otherwise, and
/// for the checkpoint, in the job's directory.
void read_training(map_reader& map, job_spec& job, const std::filesystem::path& directory);

}  // namespace troupe::formats
