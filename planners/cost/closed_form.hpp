#pragma once

#include "messages/domain/job.hpp"
#include "planners/cost/timed_plan.hpp"

namespace troupe::planners {

/// z: the time of one micro-batch in a stage.
inline double step_s(const step_costs& k) {
  return k.forward + k.recompute + k.backward;
}

/// fidelity::closed and lower_bound of plan_time.hpp: the longest of the groups, then the sums over
/// all of them. `v`: parts of the model per stage.
double closed_form_s(const timed_plan& t, const job_spec& job, double v, bool lower_bound);

}  // namespace troupe::planners
