#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "messages/domain/training.hpp"
#include "planners/cost/batch_split.hpp"
#include "planners/cost/layout.hpp"
#include "planners/schedule/evaluate_schedule.hpp"
#include "planners/schedule/schedule.hpp"

namespace troupe::planners {

/// A plan's stages in their places, with the times of their steps.
struct timed_plan {
  pipeline_layout layout;
  std::vector<batch_split> batches;  // by group
  std::vector<stage_costs> costs;    // pipeline * stages + stage
  /// By group: the slowest peer of each stage, with updates and all-reduces.
  std::vector<pipeline_shape> shapes;
  measured_times times;  // every single stage
};

/// A group's part of a timed plan: its stages are `begin` to `end` of the times by pipeline *
/// stages
/// + stage, its hops begin at `hop`.
struct group_part {
  const pipeline_shape& shape;
  std::size_t begin = 0, end = 0, hop = 0;
};
inline std::vector<group_part> parts_of_groups(const timed_plan& t) {
  std::vector<group_part> out;
  std::size_t begin = 0;
  for (std::size_t g = 0; g < t.shapes.size(); ++g) {
    const auto& shape = t.shapes[g];
    const auto all = std::size_t{shape.pipelines} * shape.stages;
    // Only the first ones of many equal pipelines may be timed.
    const auto end = std::min(begin + all, t.times.stages.size());
    out.push_back({shape, begin, end, g * shape.stages});
    begin = end;
  }
  return out;
}

}  // namespace troupe::planners
