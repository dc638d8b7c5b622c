#pragma once

#include <string>
#include <tuple>
#include <vector>

namespace troupe {

// Hosts are named as host_name() in address.hpp has them: "controller", "dc1/gateway", a node's
// name; a datacenter's name stands for its gateway and all its nodes. Times are the run's, from its
// start.

/// Nothing passes between the hosts of `a` and those of `b`, either way. `b` empty: all other
/// hosts.
struct timed_partition {
  std::vector<std::string> a, b;
  double from_s = 0, until_s = 0;

  static constexpr auto fields() {
    using t = timed_partition;
    return std::tuple{&t::a, &t::b, &t::from_s, &t::until_s};
  }
  bool operator==(const timed_partition&) const = default;
};

/// The host dies at `at_s`, with all that it had not written, and starts again `down_s` later.
struct timed_crash {
  std::string host;
  double at_s = 0, down_s = 0;

  static constexpr auto fields() {
    return std::tuple{&timed_crash::host, &timed_crash::at_s, &timed_crash::down_s};
  }
  bool operator==(const timed_crash&) const = default;
};

/// Work on the node takes `factor` times as long (a straggler).
struct slow_node {
  std::string node;
  double factor = 1;
  double from_s = 0, until_s = 0;

  static constexpr auto fields() {
    using t = slow_node;
    return std::tuple{&t::node, &t::factor, &t::from_s, &t::until_s};
  }
  bool operator==(const slow_node&) const = default;
};

/// Tensors take `factor` times as long between two datacenters, both ways.
struct slow_link {
  std::string a, b;
  double factor = 1;
  double from_s = 0, until_s = 0;

  static constexpr auto fields() {
    using t = slow_link;
    return std::tuple{&t::a, &t::b, &t::factor, &t::from_s, &t::until_s};
  }
  bool operator==(const slow_link&) const = default;
};

/// What goes wrong in a virtual run. The random faults (all but the timed ones) happen from
/// `from_s` until `until_s` only, so that a run can heal and be checked at its end.
struct fault_plan {
  std::string name;
  double from_s = 0;
  double until_s = 0;  // 0: to the end of the run
  // Probabilities for each frame that a link carries, and how much later a reordered frame comes at
  // most.
  double loss = 0, duplication = 0, reordering = 0;
  double reorder_delay_s = 0;
  // Crashes a host-hour (exponential), and the mean time down (exponential).
  double node_crashes_per_hour = 0, gateway_crashes_per_hour = 0, controller_crashes_per_hour = 0;
  double mean_down_s = 0;
  double torn_append = 0;  // probability that a journal append kills the controller half-way
  std::vector<timed_partition> partitions;
  std::vector<timed_crash> crashes;
  std::vector<slow_node> slow_nodes;
  std::vector<slow_link> slow_links;
  // Each host's wall clock is wrong by up to `wall_skew_s`, either way, and is set anew so often,
  // to be wrong by another such time. Its monotonic clock runs faster or slower by up to the share
  // `clock_drift`, in the whole run, and started at a moment of its own.
  double wall_skew_s = 0, wall_steps_per_hour = 0;
  double clock_drift = 0;

  static constexpr auto fields() {
    using t = fault_plan;
    return std::tuple{&t::name,
                      &t::from_s,
                      &t::until_s,
                      &t::loss,
                      &t::duplication,
                      &t::reordering,
                      &t::reorder_delay_s,
                      &t::node_crashes_per_hour,
                      &t::gateway_crashes_per_hour,
                      &t::controller_crashes_per_hour,
                      &t::mean_down_s,
                      &t::torn_append,
                      &t::partitions,
                      &t::crashes,
                      &t::slow_nodes,
                      &t::slow_links,
                      &t::wall_skew_s,
                      &t::wall_steps_per_hour,
                      &t::clock_drift};
  }
  bool operator==(const fault_plan&) const = default;
};

}  // namespace troupe
