#pragma once

#include <string>
#include <vector>

#include "messages/base/fields.hpp"

namespace troupe {

// Hosts are named as by host_name() in address.hpp: "controller", "dc1/gateway", a node's name; a
// datacenter's name means its gateway and all its nodes. Times are relative to the start of the
// run.

/// No frame passes between the hosts of `a` and those of `b`, in both directions. `b` empty: all
/// other hosts.
struct timed_partition {
  std::vector<std::string> a, b;
  double from_s = 0, until_s = 0;

  TROUPE_FIELDS(timed_partition, a, b, from_s, until_s);
};

/// The host crashes at `at_s`, losing everything that is not durable, and restarts `down_s` later.
struct timed_crash {
  std::string host;
  double at_s = 0, down_s = 0;

  TROUPE_FIELDS(timed_crash, host, at_s, down_s);
};

/// Work on the node takes `factor` times as long (a straggler).
struct slow_node {
  std::string node;
  double factor = 1;
  double from_s = 0, until_s = 0;

  TROUPE_FIELDS(slow_node, node, factor, from_s, until_s);
};

/// Tensors between two datacenters take `factor` times as long, in both directions.
struct slow_link {
  std::string a, b;
  double factor = 1;
  double from_s = 0, until_s = 0;

  TROUPE_FIELDS(slow_link, a, b, factor, from_s, until_s);
};

/// Faults of a virtual run. Random faults (all but the timed ones) happen only from `from_s` until
/// `until_s`, so that a run can recover and be checked at its end.
struct fault_plan {
  std::string name;
  double from_s = 0;
  double until_s = 0;  // 0: to the end of the run
  // Probabilities per frame and link, and the maximum delay of a reordered frame.
  double loss = 0, duplication = 0, reordering = 0;
  double reorder_delay_s = 0;
  // Crashes per host and hour (exponential), and the mean down time (exponential).
  double node_crashes_per_hour = 0, gateway_crashes_per_hour = 0, controller_crashes_per_hour = 0;
  double mean_down_s = 0;
  double torn_append = 0;  // probability that a journal append crashes the controller half-way
  std::vector<timed_partition> partitions;
  std::vector<timed_crash> crashes;
  std::vector<slow_node> slow_nodes;
  std::vector<slow_link> slow_links;
  // Each host's wall clock is wrong by up to `wall_skew_s` in either direction, and changes to
  // another such offset at this interval. Its monotonic clock runs faster or slower by up to the
  // fraction `clock_drift` for the whole run, and has a random origin.
  double wall_skew_s = 0, wall_steps_per_hour = 0;
  double clock_drift = 0;

  TROUPE_FIELDS(fault_plan, name, from_s, until_s, loss, duplication, reordering, reorder_delay_s,
                node_crashes_per_hour, gateway_crashes_per_hour, controller_crashes_per_hour,
                mean_down_s, torn_append, partitions, crashes, slow_nodes, slow_links, wall_skew_s,
                wall_steps_per_hour, clock_drift);
};

}  // namespace troupe
