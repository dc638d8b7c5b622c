#pragma once

#include <vector>

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

/// When all stages have finished their all-reduces and updates, given the end of each stage's last
/// backward, by group and stage. All-reduces on the same link run one after the other, from the
/// last stage on, whose backwards end first; those of a job with `overlap` also beside its last
/// steps, and where ZeRO shares the update, the exchange of new weights beside the first of the
/// next iteration. `lower_bound`: never later than a simulated schedule of 1F1B ends.
double end_of_sums_s(const timed_plan& t, const job_spec& job,
                     const std::vector<double>& last_backward_s, bool lower_bound);

}  // namespace troupe::planners
