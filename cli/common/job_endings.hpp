#pragma once

#include <functional>
#include <vector>

#include "cli/common/controller_connection.hpp"

namespace troupe::cli {

/// Waits until all these jobs have ended; `each` is called for each of them, in the order in which
/// they end. Refuses a job that is not there, and a controller that is silent for longer than the
/// client's patience.
expected<void> wait_for_jobs(remote& cluster, const std::vector<job_id>& jobs,
                             const std::function<void(const job_status&)>& each);

/// What a shell is told of a job that has ended: 0 finished; the exit status of a program that
/// failed (128 + n for a signal n), 1 for every other end.
int exit_status_of(const job_status& j);

/// "job 3 (hello) has failed: exit status 3"
std::string ending_text(const job_status& j);
json ending_document(const job_status& j);

}  // namespace troupe::cli
