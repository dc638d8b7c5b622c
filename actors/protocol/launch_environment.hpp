#pragma once

#include <string>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/wire/journal.hpp"

namespace troupe::actors {

/// The environment of a program on one part of a lease, as KEY=value: the variables of torchrun
/// (PET_*), torch.distributed's env:// (MASTER_ADDR, RANK, ...) and Troupe (TROUPE_*). The command
/// is started once per node; RANK is the global rank of the node's first GPU, WORLD_SIZE the number
/// of GPUs. `local`: all nodes are on this machine.
std::vector<std::string> launch_environment(const cluster& c, const job_spec& spec,
                                            const lease_granted& lease, std::uint32_t part,
                                            bool local);

/// The environment of the workers of a training's program on one part of a lease: the job's, its
/// place, and where other nodes reach it (TROUPE_WORKER_ADDRESS).
std::vector<std::string> worker_environment(const cluster& c, const job_spec& spec,
                                            const lease_granted& lease, std::uint32_t part,
                                            bool local);

/// The exit status that means "out of memory"; programs get it in TROUPE_OOM_EXIT. No convention
/// has it: sysexits.h ends at 78, and shells, timeout(1) and signals begin at 124.
inline constexpr int out_of_memory_exit = 113;

}  // namespace troupe::actors
