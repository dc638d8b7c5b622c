#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/control/interfaces/interfaces.hpp"
#include "actors/control/ledger/ledger.hpp"

namespace troupe::actors {

/// The speed that a job's trainer or program reports; none: of an earlier lease, or unknown.
std::optional<planners::reported_progress> reported_progress_of(const job_record& j,
                                                                const progress_report& p);

/// A number of a view (planners::job_view) that no other view of this process has.
std::uint64_t new_view_number();

/// The policy's view of a job. It is made when the job changes, and not when the policy is called:
/// calls are more frequent.
planners::job_view view_of(const cluster& c, const job_record& j, const ledger& book,
                           const std::map<job_id, plans_reply>& plans,
                           const std::map<job_id, progress_report>& progress);

/// Why a user's move of the job is refused without planning it.
reason why_immovable(const ledger& book, job_id job);

/// The policy's reason why a job with these plans waits, and the GPUs of their types that are on
/// nodes that cannot be used.
std::string why_waiting_text(const planners::policy& p, const planners::snapshot& now, job_id job,
                             const std::vector<plan>* plans);

}  // namespace troupe::actors
