#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/training/planning/planned_stages.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/wire/stage.hpp"
#include "messages/wire/work.hpp"
#include "planners/schedule/evaluate_schedule.hpp"

namespace troupe::actors {

/// Maps a lease's devices to stages, and the job's schedule to their orders. `backend`: the device
/// kind of jobs without `device`. Fails for more stages than layers, for a schedule that needs more
/// memory than allowed, and for a model that the backend cannot run.
expected<training_plan> plan_training(const cluster& c, lease_id lease, const train_order& order,
                                      const std::string& backend);

/// The largest relative difference between a measured time and the planned one.
struct drift {
  double relative = 0;  // 0: nothing was measured
  std::string what;     // for the event
};
drift drift_of(const training_plan& plan, const std::vector<stage_costs>& measured);

struct replanned {
  training_plan plan;
  double kept_s = 0;     // iteration time if the orders stay as they are
  bool changed = false;  // the plan has new, faster orders
};
/// Makes new orders for the same stages from measured times (by pipeline * stages + stage), and
/// returns the fastest of these and the present ones.
replanned replan_training(training_plan plan, const std::vector<stage_costs>& measured);

/// The plan's times, replaced by measured ones where there are any (by pipeline * stages + stage).
planners::measured_times with_measured(const training_plan& plan,
                                       const std::vector<stage_costs>& measured);

/// The part of the fastest tensor's transfer time to a stage that hosts and gateways took, not the
/// link.
double handling_s(const training_plan& plan, std::uint32_t stage, const stage_costs& measured);

/// Lower bound of the iteration time of any schedule, from planned times on simulated devices and
/// from measured ones on others. 0: not requested, or not measured yet.
/// `measured` is by pipeline * stages + stage.
double lower_bound_s(const training_plan& plan, std::vector<stage_costs> measured);

}  // namespace troupe::actors
