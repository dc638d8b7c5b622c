#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "planners/schedule/schedule.hpp"

// The time of a schedule when stage actors execute it (docs/planners/pipelines.md, "best"; its
// links: docs/planners/cost_model.md, "Links"). All times are seconds; a shape in slots has slots.

namespace troupe::planners {

/// Step times of one stage.
struct stage_times {
  double forward = 0, recompute = 0, backward = 0;
  // After its last backward: `update` with copying gradients to the host, and `exchange`, the
  // all-reduce on otherwise idle links, which happens between the two.
  double update = 0, exchange = 0;
  double gradients = 0;  // the part of `update` before the all-reduce: copying gradients
  double norms = 0;      // between all-reduce and update, if updates need the norm of all gradients
};

/// The path of a tensor inside a datacenter: it has its fair share of the link, but no more than
/// `share` of it, until it has used `link_s` of its time, which takes `alone_s` on an idle link,
/// and arrives `latency_s` later (messages/domain/link_cost.hpp).
struct lan_route {
  std::uint32_t link = 0;
  double alone_s = 0, latency_s = 0;
  double share = 1;

  double link_s() const { return alone_s * share; }
  double total_s() const { return alone_s + latency_s; }
  bool operator==(const lan_route&) const = default;
};

/// The peers of a stage that its chunks of gradients reach over the same route; one chunk each.
struct peer_route {
  lan_route route;
  std::vector<std::uint32_t> pipelines;  // the peers that are laid out
  std::uint32_t count = 0;  // all of them, those in pipelines that are not laid out included
};

/// The paths of a stage's tensors.
struct stage_routes {
  lan_route forward, backward;    // activations and their gradients; unused for WAN hops
  bool sums = false;              // the stage has gradients to all-reduce
  bool tied = false;              // first or last stage with a tied embedding
  lan_route tied_route;           // from this end of the pipeline to the other
  std::vector<peer_route> peers;  // empty although there are peers: devices all-reduce, in `sum_s`
  double sum_s = 0;
  /// From when all pipelines' parts are summed inside their datacenters to when the sum of all is
  /// back in each; 0: the stage's peers are in one datacenter.
  double between_s = 0;
};

/// An update is agreed on by all stages of all pipelines: each that has its sums says so to its
/// peer in pipeline 0, whose stages pass it on from the last to the first; the first one's answer
/// goes back the same ways.
struct commit_ways {
  std::vector<double> stages;  // of pipeline 0: from each to the next, or back
  /// By pipeline * stages + stage: to the peer in pipeline 0, or back.
  std::vector<double> peers;

  /// False: stages update by themselves.
  bool needed() const { return !peers.empty(); }
  /// When each stage has the answer; `ready`: when each could update. Both, like `peers`, by
  /// pipeline * stages + stage.
  std::vector<double> arrivals(const std::vector<double>& ready) const;
};

/// The times with which schedules are executed, one for each group of pipelines. Unlike in
/// pipeline_costs, stages and hops may differ. "By hop": group * stages + stage.
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
  /// How long words of a few bytes take, with which all stages agree to update.
  commit_ways commit;
  /// Iterations between synchronizations of all stages.
  std::uint64_t iterations = 1;
};

/// An activation or its gradient on the hop after `stage`.
struct timed_transfer {
  std::uint32_t iteration = 0, pipeline = 0, stage = 0, microbatch = 0;
  bool backward = false;
  double begin = 0;  // when it gets the link, or a share of it
  double left = 0;   // when its last byte has left the link
  double end = 0;    // when it has arrived

  bool operator==(const timed_transfer&) const = default;
};

/// A stage after an iteration's last backward: copying gradients to the host, all-reduce, update.
struct timed_tail {
  double begin = 0, exchange = 0, update = 0, end = 0;  // begin of each part; end of the last
  bool on_devices = false;                              // devices all-reduce, not their hosts

  bool operator==(const timed_tail&) const = default;
};

/// Everything that stage actors do for a schedule, with times since the first iteration's begin.
/// The bubbles between are what BubbleTea plans prefills into (bubbletea/bubbles.hpp).
struct timetable {
  std::uint32_t iterations = 0;
  std::uint32_t stages = 1;
  // By pipeline * stages + stage, iteration after iteration; pipelines may have unequal numbers.
  std::vector<std::vector<stage_task>> steps;
  std::vector<std::vector<timed_tail>> tails;  // by iteration
  std::vector<timed_transfer> transfers;       // in the order of their begin
  double length = 0;                           // until every stage has ended the last iteration

  std::size_t steps_of_iteration(std::size_t stage) const {
    return steps[stage].size() / iterations;
  }
};

/// The timetable of `iterations` (> 0) that follow each other without a barrier, executed as in
/// simulated_iteration_s; `times.iterations` is not used. Fails if the orders deadlock.
expected<timetable> simulated_timetable(std::span<const pipeline_schedule> groups,
                                        const measured_times& times, std::uint32_t iterations);
inline expected<timetable> simulated_timetable(const pipeline_schedule& schedule,
                                               const measured_times& times,
                                               std::uint32_t iterations) {
  return simulated_timetable(std::span{&schedule, 1}, times, iterations);
}

/// The time of an iteration when stage actors execute the orders of these schedules, one for each
/// group of pipelines in their order (not none), whatever times the orders were made for. A stage
/// begins each step as soon as it is free and its input has arrived. Among the transfers that wait
/// for a cell's WAN hop in one direction, the smallest turn goes first, and the link is never held
/// for one that has not arrived. Transfers on a link inside a datacenter share its bandwidth. An
/// iteration ends when every stage has done its all-reduce and update; stages that are done begin
/// the next one. The result is the mean over times.iterations, of which at most eight are simulated
/// and the others extrapolated. Infinite if the orders deadlock.
double simulated_iteration_s(std::span<const pipeline_schedule> groups,
                             const measured_times& times);
inline double simulated_iteration_s(const pipeline_schedule& schedule,
                                    const measured_times& times) {
  return simulated_iteration_s(std::span{&schedule, 1}, times);
}

}  // namespace troupe::planners
