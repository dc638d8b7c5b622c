#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "messages/reason.hpp"
#include "messages/stage.hpp"

// Pipelines across datacenters (ATLAS, section 4; docs/planners/pipelines.md): which stage does
// what when, and which transfer crosses the WAN when.

namespace troupe::planners {

/// What one micro-batch costs. Any unit of time; the paper's is a slot, one forward on one stage.
struct pipeline_costs {
  double forward = 1;
  double recompute = 1;
  double backward = 2;
  double lan = 0;          // one transfer inside a datacenter
  double wan = 2;          // one transfer between two, over one node's share of the WAN: C forwards
  double wan_latency = 0;  // until it arrives after that; the WAN is free for the next one

  bool operator==(const pipeline_costs&) const = default;
};

/// What one micro-batch costs in one stage.
struct step_costs {
  double forward = 1, recompute = 1, backward = 2;

  bool operator==(const step_costs&) const = default;
};

/// The pipelines of one job, all alike, that share a WAN.
struct pipeline_shape {
  std::uint32_t stages = 1;
  std::uint32_t pipelines = 1;  // data-parallel; a DP-cell where the WAN is shared in time
  std::uint32_t microbatches = 1;
  std::vector<std::uint32_t> stages_of_datacenter;  // in the pipeline's order; empty: all in one
  std::uint32_t cell = 0;  // pipelines of a DP-cell; 0: all. What is left over makes a smaller one
  std::optional<std::uint32_t>
      max_in_flight;  // micro-batches a stage may hold activations of (rule 2)
  pipeline_costs costs;
  std::vector<step_costs> by_stage = {};  // where stages differ, as many; empty: all as in `costs`
  /// What each stage does when its last backward has ended: sums of gradients, the update. Empty:
  /// that is left out.
  std::vector<double> tail = {};
  bool recompute = true;  // before each backward, but in the last stage (rule 4)

  double after(std::uint32_t stage) const { return tail.empty() ? 0 : tail[stage]; }
  step_costs at(std::uint32_t stage) const {
    return by_stage.empty() ? step_costs{costs.forward, costs.recompute, costs.backward}
                            : by_stage[stage];
  }
  bool recomputes(std::uint32_t stage) const { return recompute && stage + 1 < stages; }
  /// Is the hop from `stage` to the next one WAN?
  bool is_wan(std::uint32_t stage) const {
    std::uint32_t end = 0;
    for (const auto n : stages_of_datacenter)
      if (n > 0 && (end += n) == stage + 1) return end < stages;
    return false;
  }
  std::uint32_t pipelines_per_cell() const {
    return cell == 0 || cell > pipelines ? pipelines : cell;
  }
};

/// `stages` over datacenters of `each` stages, the last of what is left; 0: all in one.
std::vector<std::uint32_t> split_evenly(std::uint32_t stages, std::uint32_t each);

/// One thing that a stage does.
struct stage_task {
  using kind = stage_step::kind;
  kind what = kind::forward;
  std::uint32_t microbatch = 0;
  double begin = 0, end = 0;

  bool operator==(const stage_task&) const = default;
};

/// One transfer over a WAN hop, the one after `stage`.
struct wan_transfer {
  std::uint32_t pipeline = 0, stage = 0, microbatch = 0;
  bool backward = false;
  double begin = 0, end = 0;

  bool operator==(const wan_transfer&) const = default;
};

/// An order for every stage and every hop, with the times that it takes if nothing is late.
struct pipeline_schedule {
  pipeline_shape shape;
  std::vector<std::vector<stage_task>> tasks;  // pipeline * stages + stage; in order
  std::vector<wan_transfer> transfers;         // in order of their begin
  double length = 0;                           // until every stage is through, its tail included
  std::uint32_t max_in_flight = 0;             // activations, the most that any stage held
  bool shares_wan = false;  // a cell's transfers take turns; else every pipeline has its own share
  std::string made_by;      // the rules' name; of best, those that it chose

  const std::vector<stage_task>& of(std::uint32_t pipeline, std::uint32_t stage) const {
    return tasks[pipeline * shape.stages + stage];
  }
  /// The share of all stages' time in which they work.
  double utilization() const;
};

/// gpipe, megatron, varuna, varuna-forward-first, atlas, atlas-least-progress, best. Refuses an
/// unknown name, a shape that makes no sense, and a memory limit that no order can keep.
expected<pipeline_schedule> schedule_pipeline(const pipeline_shape& shape, std::string_view name);

/// What a stage actor is to do, for every pipeline * stages + stage: the schedule's tasks in order,
/// each with the turn of the tensor that it sends over the WAN: its rank by time among the
/// transfers of its cell (or pipeline, where the WAN is not shared), hop and direction. 0 where it
/// sends none.
std::vector<std::vector<stage_step>> stage_orders(const pipeline_schedule& schedule);

/// The names that schedule_pipeline knows, `best` last.
std::vector<std::string_view> pipeline_schedule_names();

/// No schedule of this shape is shorter (planners/pipeline/lower_bound.cpp says why).
double pipeline_lower_bound(const pipeline_shape& shape);

}  // namespace troupe::planners
