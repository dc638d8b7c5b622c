#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "planners/policy/policy.hpp"
#include "runtime/host/shared_cluster.hpp"

namespace troupe::actors {

/// When the journal is compacted, and how much history is kept.
struct journal_limits {
  std::uint64_t compact_after = 10'000;  // entries more than twice those of a snapshot
  std::size_t keep_ended = 10'000;       // ended jobs; older ones are forgotten
};

/// The options of a controller's actors.
struct controller_options {
  shared_cluster cluster;
  std::shared_ptr<const planners::policy> policy;
  bool local = false;  // all nodes are on this machine: programs rendezvous at 127.0.0.1
  /// Else planning has its own thread, and each job a time limit besides its work budget.
  bool virtual_time = false;
  /// Called after each decide() with its duration in real microseconds and the number of jobs that
  /// it started or stopped.
  std::function<void(double us, std::size_t n)> on_decision;
  journal_limits limits;
  std::uint64_t boot = 0;  // which start of the machine the monotonic clock counts from; 0: unknown
  /// A new job waits for others for this long after the first of them, so that a policy that merges
  /// jobs sees together what was submitted together. 0: it is decided at once.
  double gather_s = 0;
  /// Somebody may ask why jobs wait: policies note it while they decide.
  bool explains = true;
};

}  // namespace troupe::actors
