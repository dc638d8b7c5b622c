#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/control/ledger/ledger.hpp"
#include "messages/base/reason.hpp"
#include "messages/domain/job_union.hpp"

// Unions of jobs that run as one (docs/planners/titan.md, "Unions"). A union is a job of the
// controller's own, so that leases, nodes and reports know one job; its members keep their owners,
// limits and progress. It exists as long as its lease.

namespace troupe::actors {

/// Rejects jobs that must not run as one, whatever a policy says: their users have not agreed, or
/// they differ in what has to be equal.
expected<void> may_run_as_one(const std::vector<const job_record*>& members, merge_kind kind);

/// The union of these jobs, by ascending number.
job_union union_of(const std::vector<const job_record*>& members, merge_kind kind);
/// The job that stands for these members.
job_spec spec_of_union(const std::vector<const job_record*>& members, merge_kind kind);

/// "merged with 2, 3": the others of its union; empty: it is in none.
std::string merged_with_text(const ledger& book, const job_record& j);
std::vector<job_id> merged_with(const ledger& book, const job_record& j);

}  // namespace troupe::actors
