#pragma once

#include <string>

#include "cli/output/output.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"

namespace troupe::cli {

/// The Cells that Crius chooses a job's plan from: keys `cells`, `chosen` (index of the Cell whose
/// plan `how` is, or null), `not_executable`, `tuned` (of that Cell) and `seconds` of `troupe plan
/// --policy crius --json`.
json cells_document(const cluster& c, const job_spec& job, const plan& how);
/// The Cells as a table, the quickest of each type and count.
std::string cells_table(const cluster& c, const job_spec& job);

}  // namespace troupe::cli
