#pragma once

#include <vector>

#include "messages/base/random.hpp"
#include "messages/domain/job.hpp"

// The work of a fault seed, drawn by chance.

namespace troupe::simulation {

inline constexpr double last_submission_s = 1200;
inline constexpr int jobs_a_seed = 12;

/// Between `low` and `high`, each order of magnitude as likely.
double spread(random_source& random, double low, double high);

/// Simulated jobs and trainings.
std::vector<arrival> workload_of(random_source random);
/// Fine-tuning jobs that arrive in groups of more than the cluster has GPUs, so that many can be
/// merged and others follow.
std::vector<arrival> tuning_workload_of(random_source random);
/// Programs, most of which may be stopped, resized and moved, among simulated work.
std::vector<arrival> program_workload_of(random_source random);
/// Trainings whose pipelines are groups, among simulated work.
std::vector<arrival> grouped_workload_of(random_source random);

}  // namespace troupe::simulation
