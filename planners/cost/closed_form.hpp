#pragma once

#include <cstddef>
#include <vector>

#include "messages/domain/job.hpp"
#include "planners/cost/timed_plan.hpp"

namespace troupe::planners {

/// z: the time of one micro-batch in a stage.
inline double step_s(const step_costs& k) {
  return k.forward + k.recompute + k.backward;
}

/// A group's part of a timed plan: its stages are `begin` to `end` of the times by pipeline *
/// stages
/// + stage, its hops begin at `hop`.
struct group_part {
  const pipeline_shape& shape;
  std::size_t begin = 0, end = 0, hop = 0;
};
std::vector<group_part> parts_of_groups(const timed_plan& t);

/// fidelity::closed and lower_bound of plan_time.hpp: the longest of the groups, then the sums over
/// all of them. `v`: parts of the model per stage.
double closed_form_s(const timed_plan& t, const job_spec& job, double v, bool lower_bound);

}  // namespace troupe::planners
