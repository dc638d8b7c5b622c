#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace troupe::gpu {

/// The position of the first NaN or infinity.
std::optional<std::size_t> first_not_finite(std::span<const float> values);

/// "found nan at value 7, expected finite numbers"; empty if all are finite. `before`: values of
/// the same tensor in front of these.
std::string not_finite(std::span<const float> values, std::size_t before = 0);

}  // namespace troupe::gpu
