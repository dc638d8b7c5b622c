#pragma once

#include <string>

#include "messages/base/reason.hpp"

namespace troupe {

/// The path from the root, with its dots as they are. A relative one counts from this process's
/// current directory, which may have been deleted: then there is none, and the reason says so.
/// (The standard library's functions throw.)
expected<std::string> absolute_path(const std::string& path);

}  // namespace troupe
