#pragma once

#include <cstddef>
#include <vector>

namespace troupe::planners {

/// Which of the times fill a bubble of `room_s` best: positions in ascending order, whose times'
/// sum is at most `room_s`. The longest first, then exchanges of one for a longer one.
std::vector<std::size_t> fill_bubble(double room_s, const std::vector<double>& times_s);

}  // namespace troupe::planners
