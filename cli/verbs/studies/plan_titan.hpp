#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cli/output/output.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/titan/titan.hpp"

namespace troupe::cli {

/// `troupe plan --policy titan`, or a variant: one decision about jobs that all wait.
struct tuning_request {
  const cluster& c;
  std::vector<job_spec> jobs;
  planners::titan_options options;
  std::optional<std::uint32_t> idle;  // GPUs, the first ones; none: all
};

/// Whether titan places the job: it does not run as a pipeline and serves no model.
bool is_placed_by_titan(const job_spec& job);

/// Which jobs start on which GPUs, and which of them as one; why the others wait, and why pairs of
/// jobs are not merged. Exit status 1: the cluster can never run one of the jobs.
int show_tuning(const output& out, const tuning_request& r);

}  // namespace troupe::cli
