#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "actors/node/process_runner.hpp"

namespace troupe::actors {

/// Starts programs as process groups of this machine, each under a keeper
/// (runtime/keeper/keeper.hpp). Logs are STATE/logs/LEASE-INCARNATION/output.log. Programs that an
/// earlier incarnation of this node left running are killed first. Call it before this process has
/// threads. `lock`: of the state directory; keepers inherit it.
expected<std::shared_ptr<process_runner>> make_process_launcher(const std::string& state_directory,
                                                                std::uint64_t incarnation,
                                                                int lock = -1);

}  // namespace troupe::actors
