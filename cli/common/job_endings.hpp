#pragma once

#include <functional>
#include <vector>

#include "cli/common/controller_connection.hpp"

namespace troupe::cli {

/// Waits until all these jobs have ended; `each` is called for each of them, in the order of their
/// ends, with a reply about it alone. Fails if a job does not exist, or if the controller does not
/// answer within the client's timeout.
expected<void> wait_for_jobs(remote& cluster, const std::vector<job_id>& jobs,
                             const std::function<void(const query_reply&)>& each);

/// The exit status for a job that has ended: 0 finished; a failed program's exit status (128 + n
/// for signal n); 1 otherwise.
int exit_status_of(const job_status& j);

/// "job 3 (hello) has failed: exit status 3"
std::string ending_text(const job_status& j);
json ending_document(const query_reply& r);

}  // namespace troupe::cli
