#pragma once

#include <filesystem>

#include "cli/common/output.hpp"

namespace troupe::cli {

/// The demo's last part: a model that is served over HTTP beside a training whose bubbles compute
/// prompts, by processes on this machine. Returns what the prompts waited, and what they cost the
/// training.
expected<json> demo_serving(const output& out, const std::filesystem::path& configs,
                            const std::filesystem::path& directory);

}  // namespace troupe::cli
