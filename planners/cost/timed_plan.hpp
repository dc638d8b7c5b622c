#pragma once

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

}  // namespace troupe::planners
