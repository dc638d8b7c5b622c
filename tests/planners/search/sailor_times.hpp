#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "planners/search/sailor_formula.hpp"
#include "planners/search/space/space_problem.hpp"
#include "planners/search/space/space_times.hpp"

namespace troupe::harness {

/// GPUs of one kind in one zone.
struct sailor_pool {
  std::uint32_t kind = 0, zone = 0, gpus = 0;
};

/// A pool of Sailor's, nodes of four, as a problem of the search: classes are (kind, 1, 2, 4).
planners::space_problem sailor_problem(const std::vector<sailor_pool>& pools,
                                       const std::string& space);

/// Sailor's formula as the search's times.
class sailor_times : public planners::space_times {
 public:
  sailor_times(const sailor_formula& formula, const planners::space_problem& problem);

  stage_floor floor_of(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                       std::uint32_t count, std::uint32_t behind) const override;
  double tail_floor_s(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                      std::uint32_t count, std::uint32_t pipelines) const override;
  double line_s(const planners::space_line& line, std::uint32_t microbatches) const override;
  planners::space_value value(const planners::space_plan& plan) const override;

  sailor_plan sailor_plan_of(const planners::space_plan& plan) const;

 private:
  sailor_seat seat_of(const planners::space_seat& s) const;
  void set_sends(std::uint32_t rows, std::uint32_t cls);

  /// A stage's sends to its fastest neighbour, by the layer that is sent: an embedding's
  /// or layer's output, or the head's.
  struct sends {
    double act_s = 0;
    std::array<double, 2> grad_s{};
  };

  const sailor_formula& formula_;
  const planners::space_problem& problem_;
  std::vector<sailor_seat> seats_;  // every class in every zone that has its kind
  std::map<std::pair<std::uint32_t, std::uint32_t>, sends> sends_;  // by rows and class
  // By class, first, count and pipelines: the same ones are asked for thousands of times.
  mutable std::map<std::array<std::uint32_t, 4>, double> sums_;
};

}  // namespace troupe::harness
