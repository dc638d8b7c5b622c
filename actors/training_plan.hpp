#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "messages/cluster.hpp"
#include "messages/stage.hpp"
#include "messages/work.hpp"
#include "planners/pipeline_schedule.hpp"

namespace troupe::actors {

/// A slot job's tensor: one Gbit.
inline constexpr std::uint64_t slot_bytes = 125'000'000;

/// What a trainer tells every stage, and the shape that it planned.
struct training_plan {
  planners::pipeline_shape shape;
  planners::pipeline_schedule schedule;
  std::string schedule_name;
  double lower_bound_s = 0;         // of an iteration; 0: not asked for
  std::vector<stage_setup> stages;  // pipeline * stages + stage
  double wan_gbps = 0;              // of all hops and both directions together
};

/// Turns the devices that a lease was given into stages, and the job's schedule into their orders.
/// `backend`: what the devices are where the job does not say. Refuses what cannot be: more stages
/// than layers, a schedule that needs more memory than allowed, a model that the backend cannot
/// run.
expected<training_plan> plan_training(const cluster& c, lease_id lease, const train_order& order,
                                      const std::string& backend);

/// The same stages in the same places, with orders made for these costs (by stage).
expected<training_plan> replan_training(training_plan plan, const std::vector<stage_costs>& costs);

/// By what share the slowest stage's steps, or the WAN's way, differ most from what the plan took
/// them for; 0: nothing was measured.
double drift_of(const training_plan& plan, const std::vector<stage_costs>& measured);

}  // namespace troupe::actors
