#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "actors/node/process_runner.hpp"

namespace troupe::actors {

/// Starts programs as process groups of this machine, each under a keeper
/// (runtime/process/keeper.hpp). Logs are STATE/logs/LEASE-INCARNATION/output.log. Whatever
/// programs an earlier incarnation of this node left running are killed first. Call it before this
/// process has threads. `lock`: of the state directory; programs' keepers hold it, too.
expected<std::shared_ptr<process_runner>> make_process_launcher(const std::string& state_directory,
                                                                std::uint64_t incarnation,
                                                                int lock = -1);

/// Is this the end of a program that ran out of GPU memory? True for the agreed exit status
/// (launch.hpp), and for a failed one whose last output says so in the words of PyTorch or CUDA.
bool ran_out_of_memory(int exit_code, std::string_view last_output);

}  // namespace troupe::actors
