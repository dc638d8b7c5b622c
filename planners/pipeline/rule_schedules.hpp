#pragma once

#include <cstdint>
#include <vector>

#include "planners/pipeline/schedule.hpp"

namespace troupe::planners {

/// How a stage chooses among what it could do, and how transfers get the WAN.
struct pipeline_rules {
  /// Forward before recompute (ATLAS), or recompute first (Varuna).
  bool forward_first = false;
  /// The transfers of a DP-cell take turns on each hop and direction, each over all its nodes'
  /// shares at once; and a task whose transfer could not start at its end waits (rule 3). Otherwise
  /// every pipeline has its own share.
  bool share_wan_in_time = false;
  /// Who goes first where several pipelines could: the one that has done least, or the lowest rank.
  bool least_progress_first = false;
  /// A fixed order of forwards (m) and backwards (-1 - m) for each stage; empty: as they come.
  std::vector<std::vector<std::int32_t>> order;
};

/// A cell's schedule for all cells of a shape that they divide.
pipeline_schedule repeat(const pipeline_schedule& cell, const pipeline_shape& shape,
                         std::uint32_t pipelines_per_cell);

/// Plays the pipelines through by message arrival: a stage does one thing at a time; its recompute
/// ends no sooner than needed, hidden behind the gradient's arrival, and its backward follows at
/// once; the last stage needs none. Ties go by stage, then by the rules.
pipeline_schedule play(const pipeline_shape& shape, const pipeline_rules& rules);

}  // namespace troupe::planners
