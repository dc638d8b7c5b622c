#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "planners/schedule/schedule.hpp"

// Shapes of pipelines and figures of their schedules that only tests need.

namespace troupe::test {

/// `stages` over datacenters of `each` stages, the last with the remainder; 0: all in one.
inline std::vector<std::uint32_t> split_evenly(std::uint32_t stages, std::uint32_t each) {
  std::vector<std::uint32_t> result;
  for (; each > 0 && stages > 0; stages -= result.back()) result.push_back(std::min(each, stages));
  return result;
}

/// The share of all stages' time in which they compute, as ATLAS's Figure 6 gives it.
inline double utilization(const planners::pipeline_schedule& made) {
  double work = 0;
  for (const auto& stage : made.tasks)
    for (const auto& t : stage) work += t.end - t.begin;
  return made.length > 0 ? work / (made.length * static_cast<double>(made.tasks.size())) : 0;
}

}  // namespace troupe::test
