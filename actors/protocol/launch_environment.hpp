#pragma once

#include <string>
#include <vector>

#include "messages/cluster.hpp"
#include "messages/job.hpp"
#include "messages/journal.hpp"

namespace troupe::actors {

/// What a program started on one part of a lease finds in its environment, as KEY=value: the names
/// that torchrun (PET_*), torch.distributed's env:// (MASTER_ADDR, RANK, ...) and Troupe's own
/// readers (TROUPE_*) expect. The command is started once a node; RANK is the global rank of the
/// node's first GPU, WORLD_SIZE the number of GPUs. `local`: all nodes are this machine.
std::vector<std::string> launch_environment(const cluster& c, const job_spec& spec,
                                            const lease_granted& lease, std::uint32_t part,
                                            bool local);

/// An exit status that says "out of memory"; a program finds it in TROUPE_OOM_EXIT.
inline constexpr int out_of_memory_exit = 78;

}  // namespace troupe::actors
