#include "cli/verbs/jobs/job_action.hpp"

namespace troupe::cli {

namespace {

/// Cancels jobs by number or by filter. Returns when the controller has accepted it; programs then
/// have their grace.
job_result cancel(remote& r, job_id id) {
  const auto reply = r.ask<cancel_reply>(cancel_job{0, id});
  if (!reply) return {{}, "", reply.error()};
  // Cancelling twice is no error: the wish is fulfilled.
  job_result done{{{"job", id}, {"cancelled", reply->done}, {"reason", reply->why.text}}, ""};
  if (!reply->done)
    done.why = reply->why;
  else
    done.line = fmt::format("job {} {}", id,
                            reply->why.text.empty() ? "cancelled" : "was cancelled already");
  return done;
}

}  // namespace

std::unique_ptr<verb> make_cancel() {
  return std::make_unique<job_action>(cancel);
}

}  // namespace troupe::cli
