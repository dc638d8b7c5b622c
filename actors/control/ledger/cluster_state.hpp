#pragma once

#include <memory>
#include <vector>

#include "actors/control/ledger/ledger.hpp"
#include "planners/cluster/idle_index.hpp"
#include "planners/cluster/snapshot.hpp"

namespace troupe::actors {

/// The state of the cluster at one moment: the ledger, the hosts that are present, and the idle
/// GPUs. Only the orchestrator creates these; other actors read the published ones, which are
/// immutable.
struct cluster_state {
  std::shared_ptr<const troupe::cluster> cluster;
  ledger book;
  shared_value<std::vector<bool>> nodes_present;     // by node
  shared_value<std::vector<bool>> gateways_present;  // by datacenter
  shared_value<std::vector<planners::node_without_torch>> without_torch;
  /// GPUs of present nodes that no lease holds.
  std::shared_ptr<const planners::idle_index> idle;
  /// The journal's time, less the host's monotonic clock.
  double journal_ahead_s = 0;
};

}  // namespace troupe::actors
