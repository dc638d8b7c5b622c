#pragma once

#include <string>

#include "cli/output/output.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"
#include "planners/cost/program_time.hpp"

namespace troupe::cli {

/// A plan, as `troupe plan --json` shows it.
json plan_document(const cluster& c, const job_spec& job, const plan& p);
/// The cost of an iteration: keys `cost_per_hour` (of the GPUs), `traffic_per_iteration` (its
/// price), `cost_per_iteration` (both), `traffic` (bytes by datacenters) and `traffic_is_priced`.
json cost_document(const cluster& c, const planners::iteration_estimate& e);
/// The traffic between datacenters as a sentence; empty: there is none.
std::string traffic_text(const cluster& c, const planners::iteration_estimate& e);

}  // namespace troupe::cli
