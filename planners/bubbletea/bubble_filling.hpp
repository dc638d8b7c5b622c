#pragma once

#include <cstddef>
#include <vector>

namespace troupe::planners {

/// Rule look-ahead (docs/planners/bubbletea.md, "Rules").
///
/// A subset of the times that fills a bubble of `room_s` seconds well: positions in ascending
/// order, whose times' sum is at most `room_s`. A heuristic for the knapsack problem with equal
/// values and weights: the longest first, then exchanges of one for a longer one. O(n log n)
/// without exchanges, and n is packing_options::look_ahead.
std::vector<std::size_t> fill_bubble(double room_s, const std::vector<double>& times_s);

}  // namespace troupe::planners
