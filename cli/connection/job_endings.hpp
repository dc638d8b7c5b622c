#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/connection/controller_connection.hpp"

namespace troupe::cli {

/// Waits until all these jobs have ended; `each` is called for each of them, in the order of their
/// ends, with a reply about it alone. Fails if a job does not exist, or if the controller does not
/// answer within the client's timeout.
/// `waits` is called once for each job that still waits to run after a moment.
expected<void> wait_for_jobs(remote& cluster, const std::vector<job_id>& jobs,
                             const std::function<void(const query_reply&)>& each,
                             const std::function<void(const job_status&)>& waits = {});

/// The end of what a failed job has printed.
struct last_output {
  std::uint32_t part = 0;  // of the job, whose log it is
  std::vector<std::string> lines;
};
/// At most so many lines; none if its log is not available.
last_output last_output_of(remote& cluster, const job_status& j, std::size_t max_lines);

/// Below the sentence of its end: the last line of what a failed program has printed, and the
/// command that shows the rest.
void note_output(const output& out, remote& cluster, const job_status& j);
/// The reason why a job waits, in `explain`'s words.
void note_waiting(const output& out, remote& cluster, const job_status& j);

/// The exit status for a job that has ended: 0 finished; a failed program's exit status (128 + n
/// for signal n); 1 otherwise.
int exit_status_of(const job_status& j);

/// "job 3 (hello) has failed: exit status 3"
std::string ending_text(const job_status& j);
json ending_document(const query_reply& r);

}  // namespace troupe::cli
