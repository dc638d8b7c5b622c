#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace troupe::gpu {

/// Which examples each row has, by their numbers, in the order in which they are put there: first
/// fit decreasing. The longest come first, of equal ones the earlier; each goes to the first row
/// that has room. Needs lengths of at most `row`. Takes n log n steps for n examples.
std::vector<std::vector<std::uint32_t>> packed(std::span<const std::uint32_t> lengths,
                                               std::uint32_t row);

}  // namespace troupe::gpu
