#include "cli/verbs/jobs/suspension.hpp"

namespace troupe::cli {

namespace {

/// Queues suspended jobs again; each continues after its newest checkpoint when it gets GPUs.
job_result resume(remote& r, job_id id) {
  // The same message with `false`: being suspended is a state of the job, not an event.
  const auto reply = r.ask<suspend_reply>(suspend_job{0, id, false});
  if (!reply) return {{}, "", reply.error()};
  if (!reply->done) return not_done(id, reply->why);
  const auto now = status_of(r, id);
  if (!now) return {{}, "", now.error()};
  return {suspension(id, now->progress.iterations_done, 0, 0),
          fmt::format("job {} is queued again and continues after iteration {}", id,
                      now->progress.iterations_done)};
}

}  // namespace

std::unique_ptr<verb> make_resume() {
  return std::make_unique<job_action>(resume);
}

}  // namespace troupe::cli
