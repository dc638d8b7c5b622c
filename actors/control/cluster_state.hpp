#pragma once

#include <memory>
#include <vector>

#include "actors/control/ledger.hpp"
#include "planners/core/idle_index.hpp"

namespace troupe::actors {

/// All that is known of the cluster at one moment: what the journal holds, who is there and what is
/// idle. The orchestrator alone makes one; everybody else reads what it has published, which never
/// changes.
struct cluster_state {
  ledger book;
  shared_value<std::vector<bool>> nodes_present;     // by node
  shared_value<std::vector<bool>> gateways_present;  // by datacenter
  /// GPUs that no lease holds, of nodes that are present.
  std::shared_ptr<const planners::idle_index> idle;
};

}  // namespace troupe::actors
