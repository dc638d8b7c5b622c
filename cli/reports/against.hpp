#pragma once

#include <string>
#include <vector>

#include "cli/reports/compared_policies.hpp"

// Jobs under one policy against the same jobs under another: `troupe simulate --against`.

namespace troupe::cli {

/// {jct_better_share, jct_worse_share}: of the jobs that finished under both the result's policy
/// and c.against, the shares whose completion time differs by 10 % or more. Null without c.against.
json against_row(const comparison& c, const studies::policy_result& r);

/// The same as a table, of a document's rows. Empty where `against` is.
std::string against_table(const std::vector<json>& rows, const std::string& against);

}  // namespace troupe::cli
