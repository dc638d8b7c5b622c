#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/device_kind.hpp"
#include "messages/wire/stage.hpp"
#include "messages/wire/work.hpp"
#include "planners/cost/layout.hpp"
#include "planners/schedule/evaluate_schedule.hpp"
#include "planners/schedule/schedule.hpp"

namespace troupe::actors {

/// The size of a slot job's tensors: one Gbit.
inline constexpr std::uint64_t slot_bytes = 125'000'000;

/// The setups of all stages, the schedule, and the times that it was made for. A re-plan changes
/// orders, paths and times; layout, devices and sizes stay for the life of a lease.
struct training_plan {
  // By group of pipelines; at least one.
  std::vector<planners::pipeline_shape> shapes = std::vector<planners::pipeline_shape>(1);
  std::vector<planners::pipeline_schedule> schedules = std::vector<planners::pipeline_schedule>(1);
  planners::pipeline_layout layout;
  planners::measured_times times;
  double iteration_s = 0;  // with these times, up to the last backward
  std::string schedule_name;
  double lower_bound_s = 0;         // of an iteration; 0: not asked for
  std::vector<stage_setup> stages;  // pipeline * stages + stage
  /// By group * stages + stage, to the next stage; rate 0: not over the WAN.
  std::vector<link> hops;
  double wan_gbps = 0;  // sum of all hops and both directions
  /// The datacenters between which nothing delays tensors as the cluster file's WAN would, where
  /// the plan crosses one: "north and west"; empty: there are none.
  std::string bare_wan{};

  std::uint32_t stages_each() const { return shapes.front().stages; }  // of a pipeline
  std::uint32_t pipelines() const;                                     // of all groups
  std::size_t group_of(std::uint32_t pipeline) const;
  std::uint32_t first_of(std::size_t group) const;  // pipeline
  const planners::pipeline_shape& shape_of(std::uint32_t pipeline) const {
    return shapes[group_of(pipeline)];
  }
};

inline bool uses_real_devices(const training_plan& p) {
  return !p.stages.empty() && !is_simulated(p.stages.front().backend);
}

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
