#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "planners/search/stage_placer.hpp"

// Local search on a cut, guided by simulated schedules (docs/planners/espresso.md, "Cost trees").
// The exact cut is exact for the closed form only, and near a limit the few per cent between the
// two decide whether a set can be used.

namespace troupe::planners {

/// The stages of a plan, as an order and a cut of the division.
inline std::vector<cut_stage> stages_of(const division& d, const plan& how) {
  std::vector<cut_stage> stages;
  for (const auto& s : how.stages) {
    const auto type = std::ranges::find(d.types, *s.gpu, &stage_type::gpu) - d.types.begin();
    stages.push_back({static_cast<std::size_t>(type), s.count});
  }
  return stages;
}

/// Steepest descent: shifts the single piece, from one stage to any other, that shortens the
/// iteration most, as long as one does. `seconds(stages, best)` returns the iteration with these
/// stages, infinite if it is not below `best`. O(stages^2) calls per shift.
template <class Seconds>
void shift_pieces(std::vector<cut_stage> stages, double iteration_s, Seconds&& seconds) {
  for (bool shorter = true; std::exchange(shorter, false);) {
    auto best = stages;
    for (std::size_t from = 0; from < stages.size(); ++from)
      for (std::size_t to = 0; to < stages.size(); ++to) {
        if (from == to || stages[from].pieces < 2) continue;
        auto other = stages;
        --other[from].pieces, ++other[to].pieces;
        const double s = seconds(other, iteration_s);
        if (s >= iteration_s) continue;
        iteration_s = s, best = std::move(other), shorter = true;
      }
    stages = std::move(best);
  }
}

}  // namespace troupe::planners
