#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "planners/search/stage_table.hpp"

namespace troupe::planners {

/// How much of a model the GPUs of a set of stages hold at most, in whatever order they are: a
/// stage holds the less, the more micro-batches are in flight, so the more stages are behind it.
class capacity_bound {
 public:
  /// For a transformer (`table.homogeneous()`). `bytes`: of a GPU of each type; a stage needs less.
  /// `held`: micro-batches in flight, by the number of stages behind, for all of the pipeline's.
  capacity_bound(const stage_table& table, const std::vector<double>& bytes,
                 const std::vector<std::uint32_t>& held);

  /// Can pipelines hold the model that have `counts` stages of each type and `missing` others, of
  /// each type at most as many as `open` says? False: none can.
  bool may_hold(const std::vector<std::uint32_t>& counts, const std::vector<std::uint32_t>& open,
                std::uint32_t missing);

 private:
  /// Positions in the pipeline where stages of each type hold equally many pieces.
  struct positions {
    std::uint32_t stages = 0;
    std::vector<std::uint32_t> pieces;  // by type
    std::vector<std::size_t> largest;   // types, the most pieces first
  };
  const std::vector<double>& excess_of(std::uint64_t types);

  std::uint32_t needed_;
  std::vector<positions> positions_;
  std::map<std::uint64_t, std::vector<double>> excess_;  // by set of types
};

}  // namespace troupe::planners
