#pragma once

#include <cstdint>
#include <vector>

#include "planners/search/space/floor_table.hpp"

namespace troupe::planners {

/// A cut and the classes of its stages.
struct path_line {
  double cost = 0;
  std::vector<std::uint32_t> firsts, classes;
};

/// The cheapest line over all cuts and classes, for a limit on a stage's step and a price of a GPU
/// of each kind: a shortest path over (first piece, stages behind). What a stage needs of memory
/// depends on the stages behind it, so it is exact by the floors, for cuts of whole grains. Prices
/// stand for GPUs: no label has to know which are left.
class line_paths {
 public:
  explicit line_paths(floor_table& floors);

  /// The cost of a line is the sum over its stages of the floor of the way, and of `worth_s` x
  /// price x GPUs. `prices`: of a GPU by kind, in micro-batches. `tensor`: the one degree of all
  /// stages; 0: any. `tails`: stages whose entry, by place_of(0, first, count) + class, is above
  /// `max_tail_s` are left out; empty: none.
  void run(std::size_t rows_index, double limit_s, double worth_s,
           const std::vector<double>& prices, std::uint32_t tensor = 0,
           const std::vector<double>& tails = {}, double max_tail_s = 0);
  /// The smallest cost of a line of so many stages, after run(); infinite: there is none.
  double cost(std::uint32_t stages) const { return cost_[at(stages - 1, 0)]; }
  double min_cost() const;
  /// The line of cost(stages), which is finite.
  path_line line(std::uint32_t stages) const;
  std::uint32_t max_stages() const { return stages_; }
  /// Work done so far, in a planning_budget's units.
  std::uint64_t units() const { return units_; }

 private:
  struct choice {
    std::uint32_t count = 0, cls = 0;
  };
  std::size_t at(std::uint32_t behind, std::uint32_t first) const {
    return std::size_t{behind} * (pieces_ + 1) + first;
  }
  void best_of(std::uint32_t behind, std::uint32_t first,
               const std::vector<space_times::stage_floor>& floors, double limit_s,
               const std::vector<double>& tails, double max_tail_s);

  floor_table* floors_;
  std::uint32_t pieces_, stages_, grain_, classes_;
  const double* shortest_ = nullptr;  // of the rows of this run
  std::vector<double> gpu_cost_;      // by class
  std::vector<double> cost_;
  std::vector<choice> choice_;
  std::uint64_t units_ = 0;
};

}  // namespace troupe::planners
