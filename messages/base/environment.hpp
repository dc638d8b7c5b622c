#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace troupe {

/// Variables that Troupe sets for every program, besides those that begin with TROUPE_: a job
/// cannot set them.
inline constexpr std::array<std::string_view, 14> launch_variables{
    "MASTER_ADDR",     "MASTER_PORT",      "WORLD_SIZE",
    "NNODES",          "NODE_RANK",        "RANK",
    "LOCAL_RANK",      "LOCAL_WORLD_SIZE", "CUDA_VISIBLE_DEVICES",
    "PET_NNODES",      "PET_NODE_RANK",    "PET_NPROC_PER_NODE",
    "PET_MASTER_ADDR", "PET_MASTER_PORT"};

constexpr bool is_reserved_variable(std::string_view name) {
  return name.starts_with("TROUPE_") ||
         std::ranges::find(launch_variables, name) != launch_variables.end();
}

}  // namespace troupe
