#include "cli/verbs/jobs/suspension.hpp"

namespace troupe::cli {

namespace {

/// Waits until the job holds no GPUs, or others, and reports the cost.
job_result requeue(remote& r, job_id id) {
  const runtime::stopwatch asked;
  const auto before = status_of(r, id);
  if (!before) return {{}, "", before.error()};
  const auto reply = r.ask<requeue_reply>(requeue_job{0, id});
  if (!reply) return {{}, "", reply.error()};
  if (!reply->done) return not_done(id, reply->why);
  // The controller accepts at once; the program then has its grace to save. The verb returns when
  // its cost is known.
  const auto now = wait_for_stop(r, *before);
  if (!now) return {{}, "", now.error()};
  if (is_final(now->state)) return not_done(id, ended_meanwhile(*now));
  const auto lost = lost_iterations(*before, *now);
  return {suspension(id, now->progress.iterations_done, asked.s(), lost),
          fmt::format("job {} stopped and queued again{}{}", id, after_iteration(*now),
                      lost > 0 ? fmt::format("; {} iterations lost", lost) : "")};
}

}  // namespace

std::unique_ptr<verb> make_requeue() {
  return std::make_unique<job_action>(requeue);
}

}  // namespace troupe::cli
