#pragma once

#include <cstdint>
#include <vector>

#include "planners/search/space/space_problem.hpp"
#include "planners/search/space/space_room.hpp"
#include "planners/search/space/space_times.hpp"

namespace troupe::planners {

/// The best plans so far, best first; of equal scores the first one found is the better.
class best_plans {
 public:
  best_plans(const space_problem& p, const space_times& times, const space_room& room,
             std::size_t wanted);

  /// Values a plan, and keeps it if it is among the best and not there yet. Returns its score.
  double offer(const space_plan& plan);
  /// The score that a plan has to be below to be kept.
  double worst() const;
  double best() const;
  const std::vector<valued_plan>& all() const { return all_; }
  /// Plans that were valued.
  std::uint64_t valued() const { return valued_; }

 private:
  const space_problem* problem_;
  const space_times* times_;
  const space_room* room_;
  std::size_t wanted_;
  std::vector<valued_plan> all_;
  std::uint64_t valued_ = 0;
};

}  // namespace troupe::planners
