#pragma once

#include "cli/common/output.hpp"
#include "messages/cluster.hpp"
#include "messages/job.hpp"

namespace troupe::cli {

/// `troupe plan --policy espresso`: the cheapest GPUs for a job, and how the search went.
int show_provision(const output& out, const cluster& c, const job_spec& job);

}  // namespace troupe::cli
