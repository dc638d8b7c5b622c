#pragma once

#include <string>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "studies/workload_simulation.hpp"

namespace troupe::cli {

/// A self-contained HTML page: for each policy, the GPUs in use and the jobs waiting over time, all
/// to the same scales, with the table's main figures beside them.
std::string usage_picture(const troupe::cluster& c,
                          const std::vector<studies::policy_result>& results);

}  // namespace troupe::cli
