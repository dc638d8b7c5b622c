#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "messages/cluster.hpp"
#include "messages/stage.hpp"
#include "messages/work.hpp"
#include "planners/pipeline/evaluate_schedule.hpp"
#include "planners/pipeline/schedule.hpp"

namespace troupe::actors {

/// A slot job's tensor: one Gbit.
inline constexpr std::uint64_t slot_bytes = 125'000'000;

/// What a trainer tells every stage, and the shape that it planned.
struct training_plan {
  planners::pipeline_shape shape;
  planners::pipeline_schedule schedule;
  planners::measured_times times;  // what everything is taken to take
  double iteration_s = 0;          // then, up to the last backward
  std::string schedule_name;
  double lower_bound_s = 0;         // of an iteration; 0: not asked for
  std::vector<stage_setup> stages;  // pipeline * stages + stage
  std::vector<link> hops;           // by stage, to the next; empty rate: not over the WAN
  double wan_gbps = 0;              // of all hops and both directions together
};

/// Turns the devices that a lease was given into stages, and the job's schedule into their orders.
/// `backend`: what the devices are where the job does not say. Refuses what cannot be: more stages
/// than layers, a schedule that needs more memory than allowed, a model that the backend cannot
/// run.
expected<training_plan> plan_training(const cluster& c, lease_id lease, const train_order& order,
                                      const std::string& backend);

/// What differs most from what the plan took it for, by what share, in words.
struct drift {
  double share = 0;  // 0: nothing was measured
  std::string what;
};
drift drift_of(const training_plan& plan, const std::vector<stage_costs>& measured);

/// What is measured is by pipeline * stages + stage, as the stages are.
struct replanned {
  training_plan plan;
  double kept_s = 0;     // an iteration's length if the orders stay as they are
  bool changed = false;  // there are shorter ones, and the plan has them
};
/// The same stages in the same places, with what was measured in place of what they were taken for,
/// and the shortest of the orders that there are and of those that the schedule's rules make now.
replanned replan_training(training_plan plan, const std::vector<stage_costs>& measured);

/// What hosts and gateways took of the quickest tensor's way to a stage, besides the link itself.
double handling_s(const training_plan& plan, std::uint32_t stage, const stage_costs& measured);

/// What no schedule undercuts: on simulated devices with what the plan took them for, else with
/// what was measured. 0: not asked for, or not measured yet.
/// `measured` is by pipeline * stages + stage.
double lower_bound_s(const training_plan& plan, std::vector<stage_costs> measured);

}  // namespace troupe::actors
