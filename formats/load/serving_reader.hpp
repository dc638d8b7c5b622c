#pragma once

#include <filesystem>

#include "formats/parse/reader.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/serving.hpp"

namespace troupe::formats {

/// The keys of a job that serves a model, except those that every job has. The model's folder is
/// made absolute like other paths of a job (found_path); its shape is its config.json's, and also
/// becomes the job's `model`.
void read_serving(map_reader& map, job_spec& job, const std::filesystem::path& directory);

/// `bubbles:` of a training's `pipeline:`. `needs_folder`: guests really run, on the files of a
/// folder; otherwise a file with the model's shape will do.
bubble_lending read_bubbles(findings& found, const value& v, bool needs_folder,
                            const std::filesystem::path& directory);

}  // namespace troupe::formats
