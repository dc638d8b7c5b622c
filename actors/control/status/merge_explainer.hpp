#pragma once

#include <map>
#include <optional>

#include "actors/control/interfaces/interfaces.hpp"
#include "actors/control/ledger/ledger.hpp"
#include "messages/wire/client.hpp"
#include "planners/policy/policy.hpp"

namespace troupe::actors {

/// The jobs that a job is merged with; while it waits under a policy that merges, the waiting job
/// that is the closest to it, and why they are not merged. Nothing for any other job.
std::optional<merge_view> merge_view_of(const ledger& book, const job_record& j,
                                        const planners::policy& policy,
                                        const std::map<job_id, plans_reply>& plans);

}  // namespace troupe::actors
