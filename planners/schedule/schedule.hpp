#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/wire/stage.hpp"

// Pipelines across datacenters (ATLAS, section 4; docs/planners/pipelines.md): the order of each
// stage's tasks and of the WAN's transfers.

namespace troupe::planners {

/// Costs of one micro-batch, in any one unit of time; the paper's is a slot, one forward on one
/// stage.
struct pipeline_costs {
  double forward = 1;
  double recompute = 1;
  double backward = 2;
  double lan = 0;          // one transfer inside a datacenter
  double wan = 2;          // one transfer between two, over one node's part of the WAN: C forwards
  double wan_latency = 0;  // until a transfer arrives; the WAN is free for the next one meanwhile

  bool operator==(const pipeline_costs&) const = default;
};

/// Costs of one micro-batch in one stage.
struct step_costs {
  double forward = 1, recompute = 1, backward = 2;

  bool operator==(const step_costs&) const = default;
};

/// The pipelines of one job, all of the same shape, that share a WAN.
struct pipeline_shape {
  std::uint32_t stages = 1;
  std::uint32_t pipelines = 1;  // data-parallel; a DP-cell where the WAN is shared in time
  std::uint32_t microbatches = 1;
  std::vector<std::uint32_t> stages_of_datacenter;  // in the pipeline's order; empty: all in one
  std::uint32_t cell = 0;  // pipelines of a DP-cell (rule 1); 0: all. A remainder is a smaller cell
  std::optional<std::uint32_t> max_in_flight;  // micro-batches in flight per stage (rule 2)
  pipeline_costs costs;
  std::vector<step_costs> by_stage = {};  // by stage, if they differ; empty: `costs` for all
  /// Time of each stage's all-reduce and update, after its last backward. Empty: not included.
  std::vector<double> tail = {};
  bool recompute = true;  // before each backward, except in the last stage (rule 4)
  // The last stage's memory is planned for one micro-batch, which goes back at once; so `best`
  // leaves out gpipe, whose last stage keeps all of them.
  bool holds_one_at_end = false;
  /// By stage, micro-batches in flight at most, besides max_in_flight; empty: no such limit.
  std::vector<std::uint32_t> held = {};

  /// Micro-batches in flight in a stage at most; none: any number.
  std::optional<std::uint32_t> flight_limit(std::uint32_t stage) const {
    if (held.empty()) return max_in_flight;
    return max_in_flight ? std::min(*max_in_flight, held[stage]) : held[stage];
  }
  double after(std::uint32_t stage) const { return tail.empty() ? 0 : tail[stage]; }
  step_costs at(std::uint32_t stage) const {
    return by_stage.empty() ? step_costs{costs.forward, costs.recompute, costs.backward}
                            : by_stage[stage];
  }
  bool recomputes(std::uint32_t stage) const { return recompute && stage + 1 < stages; }
  /// Whether the hop from `stage` to the next one crosses the WAN.
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

/// One task of a stage.
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

/// An order for every stage and every hop, with planned times.
struct pipeline_schedule {
  pipeline_shape shape;
  std::vector<std::vector<stage_task>> tasks;  // pipeline * stages + stage; in order
  std::vector<wan_transfer> transfers;         // in order of their begin
  double length = 0;                           // until every stage is done, its tail included
  std::uint32_t max_in_flight = 0;             // the maximum over the stages
  bool shares_wan =
      false;            // a cell's transfers go one at a time; else every pipeline has its own part
  std::string made_by;  // the rules' name; for best, the chosen rules

  const std::vector<stage_task>& of(std::uint32_t pipeline, std::uint32_t stage) const {
    return tasks[pipeline * shape.stages + stage];
  }
};

/// The orders of stage actors, by pipeline * stages + stage: the schedule's tasks in order, each
/// with the turn of the tensor that it sends over the WAN: its position by time among the transfers
/// of its cell (or pipeline, if the WAN is not shared), hop and direction. 0 if it sends none.
std::vector<std::vector<stage_step>> stage_orders(const pipeline_schedule& schedule);

/// The rounds of a 1F1B stage with at most `held` micro-batches in flight (precondition: 0 < held),
/// term (2) of docs/planners/plan_search.md: a micro-batch begins only when the one `held` before
/// it has returned, so `full` of them return one after the other, and before that the stage does
/// `rest` forwards. `full` is the page's R, `rest` is (m - 1) mod w.
struct round_trips {
  double full = 1, rest = 0;
};
inline round_trips rounds_of(std::uint32_t microbatches, std::uint32_t held) {
  const auto window = std::min(microbatches, held);
  return {static_cast<double>((microbatches - 1) / window + 1),
          static_cast<double>((microbatches - 1) % window)};
}

/// A lower bound for any schedule of this shape (planners/schedule/lower_bound.cpp explains it).
double pipeline_lower_bound(const pipeline_shape& shape);

}  // namespace troupe::planners
