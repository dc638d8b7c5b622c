#pragma once

#include <cstdint>
#include <string>

namespace troupe::simulation {

/// Runs a workload on the small cluster while hosts crash and links lose, duplicate, reorder and
/// split, all from one seed, and checks at the end that no GPU was held twice (by the journal and
/// by what the nodes really did), that every job which a client was told is accepted has ended
/// exactly once, and that the live ledger equals the journal's replay. Gives what is wrong, or an
/// empty string.
std::string run_fault_seed(std::uint64_t seed, bool act_before_journal = false);

}  // namespace troupe::simulation
