#pragma once

#include <cstdint>
#include <optional>
#include <vector>

// ElasticFlow's admission and allocation (Gu et al., ASPLOS 2023, section 4;
// docs/planners/baselines.md), of jobs on GPUs that are alike.

namespace troupe::planners {

// Rates are in samples per second and work in samples, or any other unit in both. Times are in
// seconds from now.

/// Throughput of a job at one count of GPUs. Counts ascend.
struct scaling_point {
  std::uint32_t gpus = 0;
  double rate = 0;  // units of work a second
};

struct elastic_job {
  std::vector<scaling_point> curve;
  double work = 0;        // remaining
  double deadline_s = 0;  // from now; infinite: none
};

/// The minimum satisfactory share of each job (Algorithm 1, progressive filling): jobs in the order
/// of their deadlines, each with the fewest GPUs that complete it in time on what those before it
/// leave over time. None: with these GPUs some deadline cannot be met. `deadlines` ascend.
std::optional<std::vector<std::uint32_t>> minimum_shares(const std::vector<elastic_job>& jobs,
                                                         std::uint32_t gpus);

/// Counts of GPUs (Algorithm 2): the minimum shares, then what is left, step by step along the
/// curves, to the job that gains the most throughput, over its own at its smallest count, for a
/// GPU.
std::vector<std::uint32_t> elastic_shares(const std::vector<elastic_job>& jobs,
                                          std::vector<std::uint32_t> minimum, std::uint32_t gpus);

}  // namespace troupe::planners
