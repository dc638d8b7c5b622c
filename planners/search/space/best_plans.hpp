#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <tuple>
#include <vector>

#include "planners/search/space/space_problem.hpp"
#include "planners/search/space/space_room.hpp"
#include "planners/search/space/space_times.hpp"

namespace troupe::planners {

/// Whether two plans are equal but for the order of their groups.
bool are_alike(const space_plan& a, const space_plan& b);

/// The best plans so far, best first; of equal scores the first one found is the better. Of those
/// that are equal but for the order of their groups the best one is kept.
class best_plans {
 public:
  best_plans(const space_problem& p, const space_times& times, const space_room& room,
             std::size_t wanted);

  /// Values a plan that may be below worst() and `below`, and keeps it if it is among the best and
  /// not there yet. Returns its score, or a lower bound of it that is no better than these.
  double offer(const space_plan& plan, double below = std::numeric_limits<double>::infinity());
  /// The same for a plan whose value is known.
  void add(const valued_plan& v);
  /// The score that a plan has to be below to be kept.
  double worst() const;
  double best() const;
  const std::vector<valued_plan>& all() const { return all_; }
  /// The best plan of each shape that was valued, of the `wanted` best shapes: with other rows,
  /// another number of pipelines, or stages of other classes.
  std::vector<valued_plan> of_shapes(std::size_t wanted) const;
  /// The same of those that are not much slower than the limit of time, or dearer than the best
  /// one; also plans that break the limits. None where the goal is speed.
  std::vector<valued_plan> near_limits(std::size_t wanted) const;
  /// Plans that were valued.
  std::uint64_t valued() const { return valued_; }
  /// Work done so far, in a planning_budget's units.
  std::uint64_t units() const { return units_; }

 private:
  double score_floor(const space_plan& plan, std::uint32_t gpus) const;

  const space_problem* problem_;
  const space_times* times_;
  const space_room* room_;
  std::size_t wanted_;
  std::vector<valued_plan> all_;
  using shape = std::tuple<std::uint32_t, std::uint32_t, std::vector<std::uint32_t>>;
  static shape shape_of(const space_plan& plan);

  std::map<shape, valued_plan> shapes_;
  std::map<space_plan, double> scores_;  // of plans that take long to value
  std::uint64_t valued_ = 0, units_ = 0;
};

}  // namespace troupe::planners
