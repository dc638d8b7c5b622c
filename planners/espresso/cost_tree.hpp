#pragma once

#include <cstdint>
#include <optional>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/cluster/idle_index.hpp"
#include "planners/cluster/planning_budget.hpp"
#include "planners/espresso/provision.hpp"
#include "planners/espresso/provision_baselines.hpp"

// The cheapest GPUs that train a job within its time and its budget (Espresso, section III.B,
// equations 1 to 3 and Algorithm 1; docs/planners/espresso.md). Times are seconds, costs $,
// prices $ per hour.

namespace troupe::planners {

/// The cheapest plan that the placer makes on the idle GPUs that the job may use, all in one
/// datacenter, within the job's limits (bounds.hpp). The cost is equation 1: the time of all
/// iterations times the price of the GPUs. Where plans are simulated, `exact` takes the best of all
/// placers' plans for each set of GPUs, so that it is never more expensive than another placer.
/// With spot instances, each expected interruption adds a restart and half of the time between
/// checkpoints (cluster_settings). Without a plan, `why` names the limits or quotas that would have
/// to change.
provision cheapest_plan(const cluster& c, const idle_index& idle, const job_spec& job,
                        planning_budget& budget, const provision_options& options = {});

}  // namespace troupe::planners
