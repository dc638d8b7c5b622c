#pragma once

#include <cstdint>
#include <optional>

#include "messages/base/reason.hpp"
#include "planners/espresso/provision_baselines.hpp"

namespace troupe::planners {

struct provision_options {
  bool pruning = true;      // false: every node of every tree is opened, and every set placed
  bool exhaustive = false;  // no trees: every set is listed and placed
  provision_placer placer = provision_placer::exact;
  bool spot = false;  // use spot instances, which the provider may take back, where there are some
  /// Plans are timed by simulating their schedules; false: by the closed form, whose optimum the
  /// search then finds.
  bool simulate = true;
};

/// Counts of nodes of the cost trees, by what became of them.
struct tree_counts {
  std::uint64_t opened = 0;           // taken from the queue, and extended or placed
  std::uint64_t placed = 0;           // complete ones among them: ordered and cut
  std::uint64_t simulated = 0;        // plans whose schedule was simulated
  std::uint64_t pruned_boundary = 0;  // trees that the paper's boundary pruning drops
  std::uint64_t pruned_cost = 0, pruned_time = 0, pruned_capacity = 0;
  double bound_at_pop = 0;  // bound of the plan's set when it was taken from the queue
};

struct provision {
  std::optional<placed_plan> plan;  // none: `why`
  reason why;
  double iteration_s = 0, closed_form_s = 0;
  double total_s = 0, cost = 0;  // of all iterations of iteration_s
  double interruptions = 0;  // expected number, of spot instances; total_s and cost include them
  tree_counts search;
  bool complete = false;  // the search ended by itself: no plan outside of it costs less than bound
  double bound = 0;       // lower bound of the cost of any plan
  /// Without a plan: a set whose orders and cuts were not all examined may have one, at this cost
  /// or more.
  std::optional<double> not_examined{};
  /// The share of the cost by which a plan could be cheaper, at most.
  double gap() const { return cost > 0 && bound < cost ? 1 - bound / cost : 0; }
};

}  // namespace troupe::planners
