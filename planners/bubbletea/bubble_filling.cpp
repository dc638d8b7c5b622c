#include "planners/bubbletea/bubble_filling.hpp"

#include <algorithm>
#include <numeric>

namespace troupe::planners {

namespace {

/// Filling a bubble is a knapsack problem whose values are its weights. The longest time first
/// leaves at most half of the room where all times are short against it. Where they are not, one
/// long prompt may leave a gap that a slightly longer one would have filled: exchanges close it.
/// An exact solution by dynamic programming would cost as many steps as the room has units of time,
/// for each bubble of each group; packing_bound shows how little it could gain.
struct filling {
  const std::vector<double>& times_s;
  std::vector<std::size_t> longest_first;
  std::vector<bool> chosen;
  double left_s = 0;

  void add_all_that_fit() {
    for (const auto i : longest_first)
      if (!chosen[i] && times_s[i] <= left_s) chosen[i] = true, left_s -= times_s[i];
  }
  /// Replaces a chosen time by the longest other one that fits instead; false: there is none.
  bool exchange() {
    for (const auto out : longest_first) {
      if (!chosen[out]) continue;
      for (const auto in : longest_first) {
        if (times_s[in] <= times_s[out]) break;
        if (chosen[in] || times_s[in] - times_s[out] > left_s) continue;
        chosen[out] = false, chosen[in] = true;
        left_s -= times_s[in] - times_s[out];
        return true;
      }
    }
    return false;
  }
};

}  // namespace

std::vector<std::size_t> fill_bubble(double room_s, const std::vector<double>& times_s) {
  filling f{times_s, std::vector<std::size_t>(times_s.size()),
            std::vector<bool>(times_s.size(), false), room_s};
  std::iota(f.longest_first.begin(), f.longest_first.end(), 0);
  std::ranges::stable_sort(f.longest_first, std::ranges::greater{},
                           [&](auto i) { return times_s[i]; });
  // Each exchange makes the sum longer, and there are finitely many sums.
  do f.add_all_that_fit();
  while (f.exchange());
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < times_s.size(); ++i)
    if (f.chosen[i]) positions.push_back(i);
  return positions;
}

}  // namespace troupe::planners
