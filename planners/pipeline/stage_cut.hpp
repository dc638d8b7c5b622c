#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

// The order of stages that differ in speed and memory, and where a chain of pieces is cut among
// them.

namespace troupe::planners {

/// Seconds that a stage of kind `kind` takes for a micro-batch of the pieces [first, first +
/// count); infinite if it cannot hold them. `behind`: stages after it. A kind is a type of GPU, and
/// how many of them share a stage. Never less for a range that contains another.
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

/// The order and the cut of exactly counts[kind] stages of each kind whose slowest stage takes the
/// least; exact, up to a relative 1e-6 of that time. Each stage has at least one piece. Some 20
/// trials, each of O(kinds * product of (count + 1) * log(pieces)); times pieces^2 where a single
/// piece can be too much for a stage.
stage_cut cut_for(const std::vector<std::uint32_t>& counts, std::uint32_t pieces,
                  const range_cost& cost);

}  // namespace troupe::planners
