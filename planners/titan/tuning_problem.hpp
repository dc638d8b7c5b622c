#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "planners/cluster/gpu_pools.hpp"
#include "planners/cluster/snapshot.hpp"
#include "planners/titan/titan_options.hpp"
#include "planners/titan/tuning_tables.hpp"

// From a snapshot to TITAN's program (titan_problem.hpp), and back from its columns to jobs and
// plans. Seconds, samples.

namespace troupe::planners {

/// A job's data, by its number of samples.
tuning_job data_of(const job_spec& job, const tuning_rules& rules);

/// GPUs of a type that a job may have, were there as many.
std::uint32_t max_gpus_of(const cluster& c, const job_spec& job, gpu_index gpu,
                          const titan_options& options);

/// The meaning of a column of the program.
struct tuning_column {
  const plan* how = nullptr;              // a job's
  const tuning_option* option = nullptr;  // a union's
  double run_s = 0;                       // of all iterations
  double start_s = 0;                     // before the first one
  double samples = 0;                     // that it computes
};

/// A decision's problem, and what its parts mean.
struct tuning_problem {
  std::vector<gpu_pool> pools;
  std::vector<const job_view*> jobs;  // as the program counts them: those with plans, in order
  std::vector<merge_job> mergeable;   // the same jobs for the merger
  std::vector<merge_candidate> candidates;
  titan_problem program;
  std::vector<tuning_column> columns;                                  // as program.columns
  std::vector<std::shared_ptr<const tuning_tables::by_gpus>> options;  // of unions' columns

  /// The plan of a column.
  plan plan_of(std::size_t column) const;
  merge_kind kind_of(std::size_t column) const;
};

/// Columns of each waiting job, and of each candidate, for each pool and number of GPUs up to what
/// is in `idle`, without those that gain nothing over fewer GPUs.
tuning_problem make_tuning_problem(const snapshot& s, const idle_index& idle,
                                   const titan_options& options, const tuning_tables& tables);

/// The seconds of a naive switch to, or from, a job on these GPUs.
double start_s_of(const snapshot& s, const titan_options& options, const job_spec& job,
                  const plan& how);

}  // namespace troupe::planners
