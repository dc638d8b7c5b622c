#pragma once

#include <cstddef>

namespace troupe::formats {

/// Larger files are no traces.
inline constexpr std::size_t trace_limit_bytes = 512u << 20;

}  // namespace troupe::formats
