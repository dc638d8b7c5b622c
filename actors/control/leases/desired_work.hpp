#pragma once

#include <cstdint>
#include <optional>

#include "actors/control/ledger/ledger.hpp"
#include "actors/control/ledger/training_history.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/wire/work.hpp"

namespace troupe::actors {

/// Index of the lease's part on this node; the number of parts if there is none.
std::uint32_t part_on(const lease_record& l, node_index n);

/// The time of a program from SIGTERM to SIGKILL.
double grace_of(const cluster& c, const job_spec& program);

/// The part of a program's report that matters after its end; none: nothing does.
std::optional<program_end> end_of(const job_spec& spec, const std::optional<program_progress>& p);

/// The order for the node of a part. `local`: all nodes are on this machine.
work_order work_of(const cluster& c, const ledger& book, const training_history& training,
                   const lease_record& l, std::uint32_t part, bool local);

/// Iterations that simulated work keeps when a part is lost, given its last report: those up to the
/// last checkpoint.
std::uint64_t kept_iterations(const cluster& c, const ledger& book, const lease_record& l,
                              std::uint64_t reached);

}  // namespace troupe::actors
