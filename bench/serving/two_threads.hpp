#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gpu/inference/inference_model.hpp"
#include "harness/runs.hpp"

namespace troupe::bench {

/// Prints what two threads reach on these models: beside two processes of one thread, which compute
/// at the same time, and beside llama.cpp with two threads, if it is there; in turns.
void two_threads(const std::vector<gpu::inference_model>& models,
                 const std::optional<std::string>& modules, const scratch& in, int rounds);

}  // namespace troupe::bench
