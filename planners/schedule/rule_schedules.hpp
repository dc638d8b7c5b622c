#pragma once

#include <cstdint>
#include <vector>

#include "planners/schedule/schedule.hpp"

// Schedules by the rules of ATLAS (section 4.4, rules 1 to 5) and of the systems that it compares
// with: GPipe, Megatron-LM, Varuna (docs/planners/pipelines.md has the table).

namespace troupe::planners {

/// How a stage chooses among possible steps, and how transfers share the WAN.
struct pipeline_rules {
  /// Forward before recompute (ATLAS), or recompute first (Varuna).
  bool forward_first = false;
  /// Transfers of a DP-cell use each hop and direction one after the other, each with the bandwidth
  /// of all its nodes, and a task whose transfer could not start at its end waits (rule 3).
  /// Otherwise every pipeline uses its own node's bandwidth.
  bool share_wan_in_time = false;
  /// Which pipeline of a DP-cell goes first: the one with the fewest steps done, or the lowest
  /// index, the paper's LocalDPRank.
  bool min_progress_first = false;
  /// A fixed order of forwards (m) and backwards (-1 - m) for each stage; empty: by arrival.
  std::vector<std::vector<std::int32_t>> order;
};

/// A cell's schedule, repeated for all cells of the shape. Precondition: they divide its pipelines.
pipeline_schedule repeat(const pipeline_schedule& cell, const pipeline_shape& shape,
                         std::uint32_t pipelines_per_cell);

/// Simulates the pipelines by message arrival. A stage does one task at a time; a recompute ends
/// when its gradient arrives and its backward follows at once (rule 4); the last stage does not
/// recompute. Ties are broken by stage, then by the rules. O(tasks * log(tasks)) for a cell and its
/// remainder.
pipeline_schedule simulate_rules(const pipeline_shape& shape, const pipeline_rules& rules);

}  // namespace troupe::planners
