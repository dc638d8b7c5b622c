#pragma once

#include <filesystem>

#include "messages/admission/example_settings.hpp"
#include "messages/base/reason.hpp"

namespace troupe::formats {

/// The keys of a job file's `train:` that say how its data become rows: sequence, packing,
/// train_on, too_long and date. Other keys are not looked at.
expected<example_settings> load_example_settings(const std::filesystem::path& job_file);

}  // namespace troupe::formats
