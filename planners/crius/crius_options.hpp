#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "planners/crius/crius_search.hpp"

namespace troupe::planners {

/// Parameters of the policy. Throughput is normalized: a job's samples/s in a Cell over the best
/// that its own number of GPUs reaches on any type.
struct crius_options {
  std::string name = "crius";
  std::uint32_t search_depth = 3;     // rescalings of running jobs in one choice (section 6.1)
  bool adaptivity = true;             // GPU counts other than the job's own; false: crius-na
  bool heterogeneity = true;          // GPU types other than the job's own; false: crius-nh
  bool deadlines = false;             // crius-ddl: admitted jobs meet their deadlines
  bool solver = false;                // crius-solver: an integer program over all jobs' Cells
  double stay_restarts = 10;          // multiple of restart_s for which a changed job is left alone
  double change_cost = 0.01;          // normalized throughput that each change of a job costs
  std::uint64_t max_steps = 300'000;  // for all searches of one decision together
  /// crius-solver's program.
  std::function<cell_assignment(const std::vector<alike_choices>&,
                                const std::vector<std::uint32_t>&)>
      solve = solve_assignment;
};

}  // namespace troupe::planners
