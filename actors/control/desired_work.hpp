#pragma once

#include <cstdint>

#include "actors/control/ledger.hpp"
#include "actors/control/training_history.hpp"
#include "messages/cluster.hpp"
#include "messages/work.hpp"

namespace troupe::actors {

/// Which of a lease's parts is on this node; as many as there are if none is.
std::uint32_t part_on(const lease_record& l, node_index n);

/// What the node of a part is told to do for it. `local`: all nodes are this machine.
work_order work_of(const cluster& c, const ledger& book, const training_history& training,
                   const lease_record& l, std::uint32_t part, bool local);

/// What simulated work keeps of a part that is lost, which had last told of so many iterations:
/// what its last checkpoint held by then.
std::uint64_t kept_iterations(const cluster& c, const ledger& book, const lease_record& l,
                              std::uint64_t reached);

}  // namespace troupe::actors
