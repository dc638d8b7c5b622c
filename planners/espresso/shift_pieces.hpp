#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "planners/search/stage_placer.hpp"

namespace troupe::planners {

/// The stages of a plan of the division, as they were cut.
inline std::vector<cut_stage> stages_of(const division& d, const plan& how) {
  std::vector<cut_stage> stages;
  for (const auto& s : how.stages) {
    const auto type = std::ranges::find(d.types, *s.gpu, &stage_type::gpu) - d.types.begin();
    stages.push_back({static_cast<std::size_t>(type), s.count});
  }
  return stages;
}

/// Shifts single pieces from one stage to another, each time where it helps the most, as long as
/// that makes an iteration shorter: `seconds` says how long it is with such stages.
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
