#pragma once

#include <string>
#include <string_view>

namespace troupe {

/// Text of unknown origin made safe for terminals: control characters escaped, truncated after 60
/// bytes.
std::string shown(std::string_view text);

}  // namespace troupe
