#pragma once

#include <string>
#include <vector>

#include "studies/workload_simulation.hpp"

// The tables that bench_policies prints.

namespace troupe::bench {

/// One policy's results for one pair, a seed each.
struct contestant {
  std::string policy;
  std::vector<studies::policy_result> by_seed;
};

struct contest {
  std::string name;
  std::size_t jobs = 0;                 // of each seed
  std::vector<contestant> contestants;  // as many seeds each
  /// The same, all with data x tensor x pipeline plans.
  std::vector<contestant> with_pipelines;
  std::vector<std::string> left_out;  // sentences
};

/// A policy beside `troupe`, over the jobs that both finish; all seeds together.
struct standing {
  double jct = 0;  // its mean over troupe's
  double p99 = 0;  // of each seed its 99th percentile over troupe's, the mean of the seeds
};
standing beside(const contestant& x, const contestant& troupe);

/// The pairs in which `troupe` is not first, the furthest behind first, then the others; then each
/// pair's table.
std::string text_of(std::vector<contest> all);

}  // namespace troupe::bench
