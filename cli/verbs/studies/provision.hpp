#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/output/output.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/espresso/cheapest_plan.hpp"

namespace troupe::cli {

/// `troupe plan --policy espresso`.
struct provision_request {
  const cluster& c;
  const job_spec& job;
  planners::provision_options options;
  double limit_s = 0;  // of a search; 0: until it is through
};

/// Simulated work in 1F1B's order, which the closed form is about.
job_spec provisioned_job(const job_spec& job);

/// The cheapest GPUs for a job, and how the search went. `explain_ratios`: also what the greedy
/// placer chooses from; l_m is given of some GPU types.
struct ratio_wish {
  bool wanted = false;
  std::map<gpu_index, double> max_in_memory;
};
int show_provision(const output& out, const provision_request& r, const ratio_wish& ratios);

/// Cost against time: a table, and a page in `file`.
int show_pareto(const output& out, const provision_request& r, const std::string& file);

/// Compares the cost of every placer's plan under each limit on the time.
int sweep_limits(const output& out, const provision_request& r, const std::vector<double>& slos_s);

}  // namespace troupe::cli
