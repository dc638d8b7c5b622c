#pragma once

#include <cstddef>
#include <vector>

#include "cli/output/output.hpp"
#include "studies/workload_simulation.hpp"

namespace troupe::cli {

/// Seconds from submission to the end, of the jobs that finished.
std::vector<double> completion_times_of(const studies::policy_result& r);
/// {fraction: [], jct_s: []}: rising times, with the fraction of all that are no longer; at most
/// max_points, at equal distances of the fraction.
json completion_times(std::vector<double> jct_s, std::size_t max_points);

}  // namespace troupe::cli
