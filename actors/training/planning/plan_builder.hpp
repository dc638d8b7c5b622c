#pragma once

#include "actors/training/planning/planned_stages.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/cost/timed_plan.hpp"

namespace troupe::actors {

/// The training plan of a timed plan, without orders: the setups of all stages, and the WAN that
/// their tensors use. `job`: with its device kind. Fails for tensors that are too large.
expected<training_plan> plan_without_orders(const cluster& c, lease_id lease, job_spec job,
                                            planners::timed_plan timed);

}  // namespace troupe::actors
