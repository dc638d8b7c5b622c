#pragma once

#include <optional>

#include "studies/workload_simulation.hpp"

namespace troupe::studies {

/// Completion times that differ by less than this part count as equal (TITAN, Table 4).
inline constexpr double noted_difference = 0.1;

/// Jobs that end sooner, or later, under one policy than under another, as parts of those that
/// finished under both.
struct completion_shares {
  double better = 0, worse = 0;
};

/// Two runs of one workload. Nothing: no job finished under both.
std::optional<completion_shares> compare_completions(const workload_record& run,
                                                     const workload_record& other);

}  // namespace troupe::studies
