#pragma once

#include <filesystem>

#include "formats/parse/reader.hpp"
#include "messages/domain/job.hpp"

namespace troupe::formats {

/// The absolute path of a file or folder that a job names: in the job's directory, the current one
/// or that of the shipped files, whichever has it first; else in the job's.
std::string found_path(const std::string& named, const std::filesystem::path& directory);

/// A job's `train:`, `slots:` and `pipeline:`. Relative paths in `train:` are made absolute: the
/// first existing file in the job's directory, the current one or the shipped files; otherwise, and
/// for the checkpoint, in the job's directory.
void read_training(map_reader& map, job_spec& job, const std::filesystem::path& directory);

}  // namespace troupe::formats
