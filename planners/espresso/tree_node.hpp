#pragma once

#include <cstdint>
#include <memory>
#include <tuple>

#include "planners/espresso/provision_baselines.hpp"
#include "planners/search/stage_placer.hpp"

// Nodes of Espresso's cost trees (section III.B, Figure 6; cost_tree.cpp searches them).
//
// The number of sets grows with the number of GPUs to the power of their types, and each has to be
// ordered, cut and simulated, so listing them (`exhaustive`) does not do. The paper walks each tree
// in the order of an upper bound (equation 4) and prunes by equation 5; as that is no lower bound
// on mixed GPUs, it can lose the cheapest plan.

namespace troupe::planners {

/// A path from the root of a tree, which is a division and a number of stages (Figure 6): the
/// numbers of stages of the first types. Types are decided in a fixed order, so no set has two
/// paths.
struct tree_node {
  double min_cost = 0;  // lower bound of the cost of any completion
  std::uint64_t number = 0;
  std::size_t division = 0;
  std::uint32_t stages = 0;  // of a pipeline, when it is complete
  std::size_t types = 0;     // decided
  stage_counts counts;
  // For a complete node that was left: the next step of look_closer. 1, 2: search again for the
  // best cut; 3: simulate all cuts; 4: there are too many.
  std::uint8_t looked_at = 0;
  // For a complete node that was placed: the plan, and by which placer. min_cost is then the cost
  // by the closed form, below which no schedule is.
  std::shared_ptr<const set_plan> placed = nullptr;
  provision_placer placer = provision_placer::exact;

  /// The queue's order: the least cost first, then the oldest.
  bool operator<(const tree_node& other) const {
    return std::tie(other.min_cost, other.number) < std::tie(min_cost, number);
  }
};

}  // namespace troupe::planners
