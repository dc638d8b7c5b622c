#pragma once

#include <cstdint>
#include <optional>

#include "messages/base/reason.hpp"
#include "planners/espresso/provision_baselines.hpp"

namespace troupe::planners {

struct provision_options {
  provision_placer placer = provision_placer::exact;
  bool spot = false;  // use spot instances, which the provider may take back, where there are some
  /// Plans are timed by simulating their schedules; false: by the closed form.
  bool simulate = true;
  /// `exact`: look for a lower bound of the cost, too, with a part of the budget.
  bool bounded = true;
};

/// The work of a search.
struct provision_counts {
  std::uint64_t cuts = 0;       // with rows
  std::uint64_t valued = 0;     // plans that were valued by the closed form
  std::uint64_t simulated = 0;  // plans whose schedule was simulated
};

struct provision {
  std::optional<placed_plan> plan;  // none: `why`
  reason why;
  double iteration_s = 0, closed_form_s = 0;
  double total_s = 0, cost = 0;  // of all iterations of iteration_s
  double interruptions = 0;  // expected number, of spot instances; total_s and cost include them
  provision_counts search;
  bool complete = false;  // the search ended by itself
  double bound = 0;       // no plan of the space `espresso` costs less; 0: not known
  /// The share of the cost by which a plan could be cheaper, at most; 1 without a bound.
  double gap() const { return cost > 0 && bound < cost ? 1 - bound / cost : 0; }
};

}  // namespace troupe::planners
