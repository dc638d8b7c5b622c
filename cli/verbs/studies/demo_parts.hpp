#pragma once

#include <filesystem>

#include "cli/output/output.hpp"

namespace troupe::cli {

/// A part of the demo: trains a small GPT on real text over three datacenters, with one process
/// per node and gateway, under Varuna and under ATLAS. Writes training.html to `directory`; returns
/// the measurements. Fails if the two losses differ.
expected<json> demo_training(const output& out, const std::filesystem::path& configs,
                             const std::filesystem::path& directory);

/// The demo's last part: a model that is served over HTTP beside a training whose bubbles compute
/// prompts, by processes on this machine. Returns what the prompts waited, and what they cost the
/// training.
expected<json> demo_serving(const output& out, const std::filesystem::path& configs,
                            const std::filesystem::path& directory);

}  // namespace troupe::cli
