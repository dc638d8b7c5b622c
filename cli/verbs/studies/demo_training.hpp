#pragma once

#include <filesystem>

#include "cli/common/output.hpp"

namespace troupe::cli {

/// The demo's last part: a small GPT learns from real text over three datacenters, a process a node
/// and gateway, under Varuna and under ATLAS. Writes training.html to `directory`; gives what it
/// measured. Refuses where the two do not learn the same.
expected<json> demo_training(const output& out, const std::filesystem::path& configs,
                             const std::filesystem::path& directory);

}  // namespace troupe::cli
