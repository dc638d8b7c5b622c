#pragma once

#include <cstdint>
#include <limits>
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
  /// stages; 0: any. `within_tails`: without the stages that set_tails() leaves out.
  void run(std::size_t rows_index, double limit_s, double worth_s,
           const std::vector<double>& prices, std::uint32_t tensor = 0, bool within_tails = false);
  /// Stages whose entry, by place_of(0, first, count) + class, is above `max_tail_s` are left out
  /// of runs from now on. `tails` has to stay until the last of these.
  void set_tails(const std::vector<double>& tails, double max_tail_s);
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
  /// The cheapest class of a stage, by the floor of its way and its GPUs.
  struct stage_choice {
    double cost = std::numeric_limits<double>::infinity();
    std::uint32_t cls = 0;
  };
  enum class tail_rule : std::uint8_t { none_keeps, some_keep, all_keep };

  std::size_t at(std::uint32_t behind, std::uint32_t first) const {
    return std::size_t{behind} * (pieces_ + 1) + first;
  }
  std::size_t range(std::uint32_t first, std::uint32_t count) const {
    return std::size_t{first} * (pieces_ + 1) + count;
  }
  stage_choice cheapest(const space_times::stage_floor* f, const double* tail) const;
  void fill_cheapest(std::uint32_t behind, std::uint32_t first);
  void best_of(std::uint32_t behind, std::uint32_t first, const std::vector<stage_choice>& row);

  floor_table* floors_;
  std::uint32_t pieces_, stages_, grain_, classes_;
  // This run's:
  const space_times::stage_floor* all_ = nullptr;
  const double* shortest_ = nullptr;
  double limit_s_ = 0;
  bool within_tails_ = false;
  std::vector<double> gpu_cost_;  // by class
  std::vector<double> cost_;
  std::vector<choice> choice_;
  // By the number of pieces, of stages that have a first piece's or its twins' floors; by first
  // piece.
  std::vector<std::vector<stage_choice>> cheapest_;
  const double* tails_ = nullptr;
  double max_tail_s_ = 0;
  std::vector<tail_rule> tail_rules_;  // by range
  std::uint64_t steps_ = 0, units_ = 0;
};

}  // namespace troupe::planners
