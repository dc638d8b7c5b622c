#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "messages/reason.hpp"

namespace troupe::gpu {

/// A JSON file whose top level is an object. Fails, with the file's name, if it cannot be read, is
/// larger than `limit_bytes` or is something else.
expected<nlohmann::json> read_json_file(const std::filesystem::path& file, std::size_t limit_bytes);

}  // namespace troupe::gpu
