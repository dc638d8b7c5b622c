#pragma once

#include <cstdint>
#include <vector>

#include "planners/schedule/schedule.hpp"

namespace troupe::planners {

/// How a stage chooses among possible steps, and how transfers share the WAN.
struct pipeline_rules {
  /// Forward before recompute (ATLAS), or recompute first (Varuna).
  bool forward_first = false;
  /// Transfers of a DP-cell use each hop and direction one after the other, each with the bandwidth
  /// of all its nodes, and a task whose transfer could not start at its end waits (rule 3).
  /// Otherwise every pipeline uses its own node's bandwidth.
  bool share_wan_in_time = false;
  /// Which pipeline goes first: the one that has done least, or the lowest index.
  bool min_progress_first = false;
  /// A fixed order of forwards (m) and backwards (-1 - m) for each stage; empty: by arrival.
  std::vector<std::vector<std::int32_t>> order;
};

/// Repeats a cell's schedule for all cells of a shape that they divide.
pipeline_schedule repeat(const pipeline_schedule& cell, const pipeline_shape& shape,
                         std::uint32_t pipelines_per_cell);

/// Simulates the pipelines by message arrival: a stage does one task at a time; its recompute is
/// hidden behind the gradient's arrival and its backward follows at once; the last stage does not
/// recompute. Ties are broken by stage, then by the rules.
pipeline_schedule simulate_rules(const pipeline_shape& shape, const pipeline_rules& rules);

}  // namespace troupe::planners
