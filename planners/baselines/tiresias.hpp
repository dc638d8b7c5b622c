#pragma once

#include <memory>

#include "planners/policy/policy.hpp"

// Tiresias as a baseline: docs/planners/baselines.md.

namespace troupe::planners {

struct tiresias_options {
  /// Service from which a job is in the second queue. The authors' thresholds depend on the trace;
  /// this one is ours: two GPUs for an hour.
  double threshold_gpu_s = 2 * 3600;
};

std::unique_ptr<policy> make_tiresias(const tiresias_options& options);

}  // namespace troupe::planners
