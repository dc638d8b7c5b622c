#pragma once

#include "cli/common/output.hpp"
#include "messages/cluster.hpp"
#include "messages/job.hpp"
#include "planners/espresso/cost_tree.hpp"

namespace troupe::cli {

/// `troupe plan --policy espresso`: the cheapest GPUs for a job, and how the search went.
/// `limit_s`: how long the search may take; 0: until it is through.
int show_provision(const output& out, const cluster& c, const job_spec& job,
                   const planners::provision_options& options, double limit_s);

}  // namespace troupe::cli
