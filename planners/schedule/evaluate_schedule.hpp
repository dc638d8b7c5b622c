#pragma once

#include <cstdint>
#include <vector>

#include "planners/schedule/schedule.hpp"

namespace troupe::planners {

/// Step times of one stage.
struct stage_times {
  double forward = 0, recompute = 0, backward = 0;
  // After its last backward: copying gradients to the host and the update; the all-reduce on
  // otherwise idle links.
  double update = 0, exchange = 0;
  double gradients = 0;  // the part of `update` before the all-reduce, if there is one
};

/// The path of a tensor inside a datacenter: it gets its fair share of the link until it has used
/// `alone_s` of link time, and arrives `latency_s` later.
struct lan_route {
  std::uint32_t link = 0;
  double alone_s = 0, latency_s = 0;

  double total_s() const { return alone_s + latency_s; }
  bool operator==(const lan_route&) const = default;
};

/// Chunks of gradients of equal size, to these peers of a stage.
struct peer_route {
  lan_route route;
  std::vector<std::uint32_t> pipelines;  // of those that are laid out
  std::uint32_t count = 0;               // of all
};

/// The paths of a stage's tensors.
struct stage_routes {
  lan_route forward, backward;    // activations and their gradients; unused for WAN hops
  bool sums = false;              // it has gradients to all-reduce
  bool tied = false;              // first or last stage with a tied embedding
  lan_route tied_route;           // between the two
  std::vector<peer_route> peers;  // empty with peers: their devices all-reduce, in `sum_s`
  double sum_s = 0;
};

/// Actual times. Unlike in pipeline_costs, stages and hops may differ.
struct measured_times {
  std::vector<stage_times> stages;  // pipeline * stages + stage
  /// By hop: a transfer over one node's part of the WAN; unused for other hops.
  std::vector<double> wan;
  /// By hop: a transfer inside a datacenter over an idle link.
  std::vector<double> lan;
  double wan_latency = 0;
  /// As `stages`. Empty: hops take `lan` and all-reduces `exchange`, without contention.
  std::vector<stage_routes> routes;
  std::uint32_t links = 0;  // number of links in `routes`
  /// Iterations between synchronizations of all stages.
  std::uint64_t iterations = 1;
};

/// The passage of an activation or its gradient over the hop after `stage`.
struct timed_transfer {
  std::uint32_t iteration = 0, pipeline = 0, stage = 0, microbatch = 0;
  bool backward = false;
  double begin = 0;  // it gets (its share of) the link
  double left = 0;   // the link is free of it
  double end = 0;    // it has arrived

  bool operator==(const timed_transfer&) const = default;
};

/// A stage after an iteration's last backward: gradients to the host, all-reduce, update.
struct timed_tail {
  double begin = 0, exchange = 0, update = 0, end = 0;  // when each part begins; the last one's end
  bool on_devices = false;                              // these all-reduce, not their hosts

  bool operator==(const timed_tail&) const = default;
};

/// When everything happens that stage actors do for a schedule, from the first iteration's begin.
struct timetable {
  std::uint32_t iterations = 0;
  std::uint32_t stages = 1;
  // By pipeline * stages + stage; the steps of one iteration after the other's.
  std::vector<std::vector<stage_task>> steps;
  std::vector<std::vector<timed_tail>> tails;  // by iteration
  std::vector<timed_transfer> transfers;       // in the order of their begin
  double length = 0;                           // every stage has ended the last iteration

  std::size_t steps_of_iteration(std::size_t stage) const {
    return steps[stage].size() / iterations;
  }
};

/// The timetable of `iterations` (> 0) that follow each other without a barrier, executed as in
/// simulated_iteration_s; `times.iterations` is not used. Fails if the orders deadlock.
expected<timetable> simulated_timetable(const pipeline_schedule& schedule,
                                        const measured_times& times, std::uint32_t iterations);

/// The time of an iteration when stage actors execute the schedule's orders, whatever times these
/// were made for. A stage begins each step as soon as it is free and the input has arrived; of the
/// transfers that wait for a cell's hop and direction, the one with the smallest rank goes first,
/// and the link is never held for one that has not arrived; transfers on a link inside a datacenter
/// share its bandwidth. An iteration ends when every stage has done its all-reduce and update.
/// Stages that are done begin the next iteration: with several iterations the result is their mean,
/// without the overlap. Infinite if the orders deadlock.
double simulated_iteration_s(const pipeline_schedule& schedule, const measured_times& times);

}  // namespace troupe::planners
