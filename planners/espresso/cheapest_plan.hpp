#pragma once

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/cluster/idle_index.hpp"
#include "planners/cluster/planning_budget.hpp"
#include "planners/espresso/provision.hpp"

// The cheapest GPUs that train a job within its time and its budget (Espresso, section III.B,
// equations 1 to 3; docs/planners/espresso.md). Times are seconds, costs $, prices $ per hour.

namespace troupe::planners {

/// The cheapest plan that is found on the idle GPUs that the job may use, all in one datacenter,
/// within the job's limits (bounds.hpp): by `exact` the search for pipelines in the space
/// `espresso`, by the others the placer's plans of sets (search/set_climb.hpp). The cost is
/// equation 1: the time of all iterations times the price of the GPUs. With spot instances, each
/// expected interruption adds a restart and half of the time between checkpoints
/// (cluster_settings). Without a plan, `why` names the limits or quotas that would have to change.
provision cheapest_plan(const cluster& c, const idle_index& idle, const job_spec& job,
                        planning_budget& budget, const provision_options& options = {});

}  // namespace troupe::planners
