#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "messages/base/folds.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/device_kind.hpp"
#include "messages/wire/stage.hpp"
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
  /// The pipelines of all groups.
  std::uint32_t pipelines() const {
    return troupe::sum_of(shapes, &planners::pipeline_shape::pipelines);
  }
  std::size_t group_of(std::uint32_t pipeline) const {
    std::size_t g = 0;
    while (g + 1 < shapes.size() && pipeline >= shapes[g].pipelines)
      pipeline -= shapes[g++].pipelines;
    return g;
  }
  /// The first pipeline of a group.
  std::uint32_t first_of(std::size_t group) const {
    std::uint32_t first = 0;
    for (std::size_t g = 0; g < group; ++g) first += shapes[g].pipelines;
    return first;
  }
  const planners::pipeline_shape& shape_of(std::uint32_t pipeline) const {
    return shapes[group_of(pipeline)];
  }
};

inline bool uses_real_devices(const training_plan& p) {
  return !p.stages.empty() && !is_simulated(p.stages.front().backend);
}

}  // namespace troupe::actors
