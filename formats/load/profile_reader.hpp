#pragma once

#include <filesystem>
#include <optional>

#include "messages/domain/profile.hpp"

namespace troupe::formats {

/// Reads the profile named by the map's key `profile`, relative to this directory or the current
/// one; without the key, `out` is unchanged.
void read_named_profile(map_reader& map, const std::filesystem::path& directory,
                        std::optional<device_profile>& out);

}  // namespace troupe::formats
