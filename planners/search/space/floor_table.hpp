#pragma once

#include <cstdint>
#include <vector>

#include "planners/search/space/space_problem.hpp"
#include "planners/search/space/space_room.hpp"
#include "planners/search/space/space_times.hpp"

namespace troupe::planners {

/// The floors of all ranges of pieces (space_times::floor_of), asked for once for each number of
/// rows. References stay valid.
class floor_table {
 public:
  /// Classes that no pool has room for have no floor.
  floor_table(const space_problem& p, const space_times& times, const space_room& room);

  /// Floors for one number of rows: by place, `place_of()`, and class.
  using places = std::vector<space_times::stage_floor>;
  const places& of_rows(std::size_t rows_index);
  std::size_t place_of(std::uint32_t behind, std::uint32_t first, std::uint32_t count) const {
    return ((std::size_t{behind} * pieces_ + first) * (pieces_ + 1) + count) * classes_;
  }
  /// Hops that leave a node, by class: to the stage in front, and to the one behind.
  struct hop_places {
    std::vector<space_times::hop_floor> in_front, behind;
    double longest_step_s = 0;  // that a stage's two hops may add to its step
  };
  const hop_places& hops_of_rows(std::size_t rows_index);
  /// Sums on a first node, by place_of(0, first, count) and class; empty: there are none.
  using sum_places = std::vector<space_times::node_sum>;
  const sum_places& sums_of_rows(std::size_t rows_index);
  /// By place, without class: the shortest step of any class and of as many pieces or more.
  const std::vector<double>& shortest_steps(std::size_t rows_index) {
    of_rows(rows_index);
    return shortest_[rows_index];
  }
  /// By stages behind * pieces + first piece, of whole grains: the smallest first piece whose
  /// stages have the same floors as this one's, with the same number of pieces and of stages
  /// behind.
  const std::vector<std::uint32_t>& twins(std::size_t rows_index) {
    of_rows(rows_index);
    return twins_[rows_index];
  }
  /// Limits on a stage's step that are worth trying, ascending by 5 %, from the shortest of all
  /// pipelines to the longest step of a stage.
  const std::vector<double>& limits(std::size_t rows_index);
  /// Whether a model of so many rows can be held at all, by the floors of single pieces.
  bool possible(std::size_t rows_index) { return !limits(rows_index).empty(); }

  const space_problem& problem() const { return *problem_; }
  const space_times& times() const { return *times_; }
  /// Work done so far, in a planning_budget's units.
  std::uint64_t units() const { return units_; }

 private:
  void fill_limits(std::size_t rows_index);
  void fill_shortest(std::size_t rows_index);
  void fill_twins(std::size_t rows_index);

  const space_problem* problem_;
  const space_times* times_;
  std::size_t pieces_, classes_;
  std::vector<bool> possible_;  // by class
  std::vector<places> floors_;
  std::vector<std::vector<double>> limits_, shortest_;
  std::vector<std::vector<std::uint32_t>> twins_;
  std::vector<hop_places> hops_;
  std::vector<sum_places> sums_;
  std::vector<bool> has_sums_;  // whether sums_ was asked for
  std::uint64_t units_ = 0;
};

/// S and u of a line by its floors.
space_times::stage_floor line_floor(floor_table& floors, std::size_t rows_index,
                                    const std::vector<std::uint32_t>& firsts,
                                    const std::vector<std::uint32_t>& classes);

/// Prices of a GPU of each kind, in micro-batches, in several directions: all of them together are
/// worth `microbatches`. `gpus`: of each kind.
std::vector<std::vector<double>> price_directions(const std::vector<std::uint32_t>& gpus,
                                                  double microbatches);

}  // namespace troupe::planners
