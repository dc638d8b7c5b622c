#pragma once

#include <filesystem>
#include <optional>

#include "formats/load/model_reader.hpp"
#include "messages/profile.hpp"

namespace troupe::formats {

/// The profile in the file that a map's key `profile` names, from this directory or the current
/// one; without the key, `out` stays as it is.
void read_named_profile(map_reader& map, const std::filesystem::path& directory,
                        std::optional<device_profile>& out);

}  // namespace troupe::formats
