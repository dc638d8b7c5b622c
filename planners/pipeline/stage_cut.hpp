#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

// Where a chain of pieces is cut among stages that differ in speed and memory, in a given order or
// in the best one.

namespace troupe::planners {

/// Stages that are alike: a type of GPU, and how many of them share a stage.
struct stage_kind {
  std::uint32_t count = 0;  // stages of this kind, of one pipeline
};

/// Seconds that a stage of kind `kind` takes for a micro-batch of the pieces [first, first +
/// count); infinite if it cannot hold them. `behind`: stages after it. Never less for a longer
/// range that contains the shorter one, nor for more stages behind.
using range_cost = std::function<double(std::size_t kind, std::uint32_t first, std::uint32_t count,
                                        std::uint32_t behind)>;

/// A stage of a cut.
struct cut_stage {
  std::size_t kind = 0;
  std::uint32_t pieces = 0;

  bool operator==(const cut_stage&) const = default;
};

struct stage_cut {
  double slowest_s = std::numeric_limits<double>::infinity();  // what the slowest stage takes
  std::vector<cut_stage> stages;                               // empty: nothing fits
};

/// The order of exactly these stages, and the cut, whose slowest stage takes the least; exact, up
/// to a relative 1e-6 of that time. Each stage has at least one piece. O(kinds * product of (count
/// + 1) * log(pieces)) a trial of some 40.
stage_cut cut_for(const std::vector<stage_kind>& kinds, std::uint32_t pieces,
                  const range_cost& cost);
/// The cut alone, for stages of these kinds in this order.
stage_cut cut_in_order(const std::vector<std::size_t>& order, std::uint32_t pieces,
                       const range_cost& cost);

}  // namespace troupe::planners
