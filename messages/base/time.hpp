#pragma once

#include <cstdint>
#include <limits>

namespace troupe {

/// Nanoseconds of any clock.
using time_ns = std::int64_t;
inline constexpr time_ns never_ns = std::numeric_limits<time_ns>::max();

/// The same in seconds, or in slots.
inline constexpr double never = std::numeric_limits<double>::infinity();

}  // namespace troupe
