#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "planners/search/stage_table.hpp"

// The memory bound of a set of stages: the capacity pruning of the searches (Espresso, section
// III.B, method 3; docs/planners/plan_search.md, "Memory").

namespace troupe::planners {

/// Upper bound on the pieces of a model that a set of stages can hold, over all orders of the
/// stages. A stage further in front has more micro-batches in flight (1F1B), so it holds fewer.
class capacity_bound {
 public:
  /// For a transformer (`table.homogeneous()`). `bytes`: memory of a GPU of each type; a stage must
  /// need less. `held`: micro-batches in flight by the number of stages behind, one entry for each
  /// stage of the pipeline.
  capacity_bound(const stage_table& table, const std::vector<double>& bytes,
                 const std::vector<std::uint32_t>& held);

  /// Whether pipelines of `counts` stages of each type and `missing` more, at most `open` of each
  /// type, may hold the model. False is certain: none can. True is not: it is a bound. O(positions
  /// * types) after the first call with the same types.
  bool may_hold(const std::vector<std::uint32_t>& counts, const std::vector<std::uint32_t>& open,
                std::uint32_t missing);

 private:
  /// Neighbouring positions in the pipeline at which the stages of each type hold equally many.
  struct positions {
    std::uint32_t stages = 0;
    std::vector<std::uint32_t> pieces;  // by type
    std::vector<std::size_t> largest;   // types, the most pieces first
  };
  /// By price vector: the second term of the bound, which depends on the set's types alone.
  const std::vector<double>& excess_of(std::uint64_t types);

  std::uint32_t needed_;  // pieces of the model, the head among them
  std::vector<positions> positions_;
  std::map<std::uint64_t, std::vector<double>> excess_;  // by set of types, a bit for each
};

}  // namespace troupe::planners
