#pragma once

#include <vector>

#include "planners/pipeline/schedule.hpp"

namespace troupe::planners {

/// What one stage's steps take where it is.
struct stage_times {
  double forward = 0, recompute = 0, backward = 0;
  // When its last backward has ended: handing out gradients and the update; summing with others.
  double update = 0, exchange = 0;
};

/// What everything really takes. Unlike pipeline_costs, stages and hops may differ.
struct measured_times {
  std::vector<stage_times> stages;  // pipeline * stages + stage
  /// By hop: one transfer over one node's share of the WAN; that of others does not matter.
  std::vector<double> wan;
  double lan = 0, wan_latency = 0;
};

/// How long an iteration takes when stage actors carry out the schedule's orders, whatever they
/// were made for: a stage begins each step as soon as it is free and what it needs is there; of
/// the transfers that wait for a cell's hop and direction the one with the smallest turn goes
/// first, and none waits for one that has not come. It ends when every stage is through. Infinite
/// if the orders wait for each other.
double carried_out_s(const pipeline_schedule& schedule, const measured_times& times);

}  // namespace troupe::planners
