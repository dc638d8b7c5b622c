#pragma once

#include <cstddef>
#include <vector>

// Gavel's allocations (Narayanan et al., OSDI 2020, sections 3 and 4; docs/planners/baselines.md).

namespace troupe::planners {

// Rates are in any unit that is the same for all types of a job: objectives compare each job with
// itself. The max-min objective is their policy LAS (least attained service).

struct gavel_job {
  double gpus = 0;            // scale factor
  double weight = 1;          // jobs that it stands for
  std::vector<double> rates;  // throughput by type; 0: it cannot run there
};

enum class gavel_objective {
  max_sum,  // of throughputs, each over the job's own best
  max_min   // of throughputs, each over what an equal share of all types gives
};

/// The share of time that each job has on each type: X[job][type]. Rows sum to at most 1, and no
/// type is given out more than it has. By Clp; deterministic.
std::vector<std::vector<double>> gavel_allocation(const std::vector<gavel_job>& jobs,
                                                  const std::vector<double>& capacity,
                                                  gavel_objective objective);

}  // namespace troupe::planners
