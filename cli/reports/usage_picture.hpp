#pragma once

#include <string>

#include "cli/reports/compared_policies.hpp"

namespace troupe::cli {

/// A self-contained HTML page: for each policy, the GPUs in use and the jobs waiting over time, all
/// to the same scales, with the table's main figures; and all policies' completion times.
std::string usage_picture(const comparison& c);

}  // namespace troupe::cli
