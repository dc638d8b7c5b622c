#include "planners/bubbletea/packing_bound.hpp"

#include <algorithm>
#include <bitset>
#include <cmath>
#include <cstdint>
#include <map>

namespace troupe::planners {

namespace {

constexpr std::size_t units = 1000;  // per window

/// Subset sum on a grid: bit n is set if some subset's sum is n units. Rounding down lets no true
/// subset appear longer than the room; adding a unit for each time that could take part makes up
/// for it, so that the result stays an upper bound. A thousand units are one shift of a bit set a
/// time. No subset whose sum is at most `room_s` has a longer sum. `times_s` ascending. Times are
/// rounded down to units, and what that leaves out is added for as many as could fit.
double subset_bound_s(double room_s, const std::vector<double>& times_s) {
  const double unit_s = room_s / units;
  std::bitset<units + 1> reached;
  reached.set(0);
  std::size_t fitting = 0;
  double shortest_s = 0;
  for (const auto t : times_s) {
    if (t > room_s) break;
    if (shortest_s + t <= room_s) shortest_s += t, ++fitting;
    const auto n = std::min(units, static_cast<std::size_t>(t / unit_s));
    if (!reached[units]) reached |= reached << n;
  }
  std::size_t best = units;
  while (!reached[best]) --best;
  return std::min(room_s, static_cast<double>(best + fitting) * unit_s);
}

}  // namespace

double packing_bound_s(packing_rule rule, const idle_windows& windows,
                       const std::vector<double>& offered_s) {
  if (rule == packing_rule::chunked || rule == packing_rule::resumable) return total_s(windows);
  auto times_s = offered_s;
  std::ranges::sort(times_s);
  // Windows repeat with the iterations: few lengths, each solved once.
  std::map<std::int64_t, double> known;  // by length, rounded up to nanoseconds
  double sum = 0;
  for (const auto& w : windows) {
    const auto length = static_cast<std::int64_t>(std::ceil(w.length_s() * 1e9));
    const auto [at, fresh] = known.try_emplace(length, 0);
    if (fresh) at->second = subset_bound_s(static_cast<double>(length) * 1e-9, times_s);
    sum += at->second;
  }
  return sum;
}

}  // namespace troupe::planners
