#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "planners/search/cut_label.hpp"
#include "planners/search/cut_problem.hpp"

// The order of stages that differ in speed and memory, and where a model is cut among them, so that
// an iteration is the shortest by the closed form of 1F1B (docs/planners/plan_search.md, "The order
// and the cut"). Espresso's paper solves the same problem greedily (Algorithm 2, cmr_placer.hpp).
// Times are seconds.

namespace troupe::planners {

/// A stage of a cut, in the pipeline's order.
struct cut_stage {
  std::size_t type = 0;
  std::uint32_t pieces = 0;

  bool operator==(const cut_stage&) const = default;
};

struct stage_cut {
  double iteration_s = std::numeric_limits<double>::infinity();
  std::vector<cut_stage> stages;  // empty: nothing within the limit was found
  /// Lower bound over all orders and cuts: iteration_s itself, unless the search was cut short.
  double bound_s = std::numeric_limits<double>::infinity();
  /// Where stages share links, iteration_s is a bound itself and another cut may turn out to be
  /// shorter: the cuts with the next smallest bounds.
  struct alternative {
    double bound_s = 0;
    std::vector<cut_stage> stages;
  };
  std::vector<alternative> others;
};

/// Effort of one search.
struct cut_effort {
  std::uint64_t max_steps = 100'000;
  bool rough = false;  // prefer an early bound to the best cut: where few sets keep the limit
};

/// Allocations that searches reuse one after the other, since most of them are short.
struct cut_memory {
  std::vector<std::vector<cut_label>> labels;
};

// The search for the order and the cut of a set of stages (docs/planners/plan_search.md, "The order
// and the cut"). p stages in all orders, with all cuts of n pieces, are p! / (product of counts!) *
// C(n - 1, p - 1) plans, too many to evaluate. Balancing work by speed does not do either: a stage
// further in front waits longer for each micro-batch and holds more of them in memory, so speed,
// order and memory have to be weighed together.
//
// Stages are added from the last to the first, because what follows a stage decides how long a
// micro-batch is away from it, and so how often it must wait. A label (cut_label.hpp) is one way to
// use a part of the set for the last pieces. This is a shortest-path search with several criteria:
// of labels with the same part of the set, first piece and front type, only those are kept that no
// other dominates in everything that the stages in front can still turn into time (label_order),
// and whose lower bound is within a limit.

/// The shortest iteration over all orders and cuts of exactly the problem's stages, each with at
/// least one piece (the last one of a transformer may have its head alone); none if that is longer
/// than `limit_s`. Exact for evaluate's closed form if the problem describes it exactly: `links`
/// hold for every stage of a type, own_links is true, and no embedding is tied. `steps` is
/// increased by the labels that were made and compared. Beyond the effort's `max_steps` the result
/// is the best of a search that keeps eight labels of each part of the set, with a bound. With many
/// types of many stages each (more than 200,000 parts), only the bound is returned.
stage_cut cut_for(const cut_problem& problem, double limit_s, std::uint64_t& steps,
                  cut_memory& memory, const cut_effort& effort = {});

/// Every order and cut whose bound is at most `limit_s`, smallest bound first. Nothing: there are
/// too many to enumerate in `max_steps`.
std::optional<std::vector<stage_cut::alternative>> cuts_within(const cut_problem& problem,
                                                               double limit_s, std::uint64_t& steps,
                                                               cut_memory& memory,
                                                               std::uint64_t max_steps);

}  // namespace troupe::planners
