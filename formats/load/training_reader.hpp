#pragma once

#include <filesystem>

#include "formats/parse/reader.hpp"
#include "messages/job.hpp"

namespace troupe::formats {

/// A job's `train:`, `slots:` and `pipeline:`. Relative paths in `train:` come out absolute: a file
/// of the job's directory, of the current one or of the shipped tree, in this order; what is in
/// none of them, and the checkpoint, belong to the job's directory.
void read_training(map_reader& map, job_spec& job, const std::filesystem::path& directory);

}  // namespace troupe::formats
