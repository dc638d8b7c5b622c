#pragma once

#include <cstdint>
#include <vector>

#include "planners/pipeline/schedule.hpp"

namespace troupe::planners {

/// What one stage's steps take where it is.
struct stage_times {
  double forward = 0, recompute = 0, backward = 0;
  // When its last backward has ended: handing out gradients and the update; summing with others, if
  // nobody else used its links.
  double update = 0, exchange = 0;
  double gradients = 0;  // of `update`: what comes before the sums, if there are any
};

/// A tensor's way inside a datacentre: it has its share of a link's time, with all others that are
/// on it, until it has had `alone_s`; `latency_s` later it is there.
struct timed_way {
  std::uint32_t link = 0;
  double alone_s = 0, latency_s = 0;

  double total_s() const { return alone_s + latency_s; }
  bool operator==(const timed_way&) const = default;
};

/// Chunks of gradients, as long as each other, to these peers of a stage.
struct way_to_peers {
  timed_way way;
  std::vector<std::uint32_t> pipelines;
};

/// Where a stage's tensors go.
struct stage_ways {
  timed_way forward, backward;      // activations and their gradients; not where that is a WAN hop
  bool sums = false;                // it has gradients that others want
  bool tied = false;                // the first and the last stage, of an embedding that both have
  timed_way tied_way;               // from one of these to the other
  std::vector<way_to_peers> peers;  // empty though it has some: their devices sum, in `sum_s`
  double sum_s = 0;
};

/// What everything really takes. Unlike pipeline_costs, stages and hops may differ.
struct measured_times {
  std::vector<stage_times> stages;  // pipeline * stages + stage
  /// By hop: one transfer over one node's share of the WAN; that of others does not matter.
  std::vector<double> wan;
  /// By hop: one transfer inside a datacentre, if nobody else uses its link.
  std::vector<double> lan;
  double wan_latency = 0;
  /// As `stages`. Empty: hops take `lan` and sums `exchange`, whoever else is sending.
  std::vector<stage_ways> ways;
  std::uint32_t links = 0;  // that these name
  /// So many follow each other before all stages wait for each other.
  std::uint64_t iterations = 1;
};

/// How long an iteration takes when stage actors carry out the schedule's orders, whatever they
/// were made for: a stage begins each step as soon as it is free and what it needs is there; of
/// the transfers that wait for a cell's hop and direction the one with the smallest turn goes
/// first, and none waits for one that has not come; those that are on a link inside a datacentre
/// share it. It ends when every stage is through, sums of gradients and updates included. A stage
/// that is begins the next iteration meanwhile: of several it is the mean, without what they
/// overlap. Infinite if the orders wait for each other.
double carried_out_s(const pipeline_schedule& schedule, const measured_times& times);

}  // namespace troupe::planners
