#pragma once

#include <string>
#include <vector>

#include "cli/reports/compared_policies.hpp"

// Figures of policies that merge jobs, and start them on GPUs of others.

namespace troupe::cli {

/// {merges, merged_jobs, switches, switch_s_total, solve_ms: {mean, max}, gap_max} of one of c's
/// results; the last two are null for policies that solve no integer program.
json unions_row(const comparison& c, const studies::policy_result& r);

/// The same as a table, of a document's rows. Empty where no policy has any.
std::string unions_table(const std::vector<json>& rows);

}  // namespace troupe::cli
