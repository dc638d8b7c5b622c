#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "messages/base/reason.hpp"

namespace troupe::gpu {

/// SHA-256 of files' contents, one behind the other, in hexadecimal digits.
expected<std::string> sha256_of_files(const std::vector<std::filesystem::path>& files);

/// SHA-256 of a model's weights: of each *.safetensors of its folder, by name, the name, a zero
/// byte and the content. Troupe's Python package records the same in checkpoints.
expected<std::string> sha256_of_weights(const std::filesystem::path& folder);

}  // namespace troupe::gpu
