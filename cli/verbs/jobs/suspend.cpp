#include "cli/verbs/jobs/suspension.hpp"

namespace troupe::cli {

namespace {

/// Waits until the job holds no GPUs, and reports the cost.
job_result suspend(remote& r, job_id id) {
  const runtime::stopwatch asked;
  const auto before = status_of(r, id);
  if (!before) return {{}, "", before.error()};
  const auto reply = r.ask<suspend_reply>(suspend_job{0, id, true});
  if (!reply) return {{}, "", reply.error()};
  if (!reply->done) return not_done(id, reply->why);
  const auto now = wait_for_stop(r, *before);
  if (!now) return {{}, "", now.error()};
  // Another client's `troupe resume` came first.
  if (now->progress.attempts != before->progress.attempts)
    return not_done(id,
                    {reason::kind::stale, fmt::format("job {} was resumed in the meantime", id)});
  if (is_final(now->state)) return not_done(id, ended_meanwhile(*now));
  const auto lost = lost_iterations(*before, *now);
  return {suspension(id, now->progress.iterations_done, asked.s(), lost),
          fmt::format("job {} suspended{}{}", id, after_iteration(*now),
                      lost > 0 ? fmt::format("; {} iterations lost", lost) : "")};
}

}  // namespace

std::unique_ptr<verb> make_suspend() {
  return std::make_unique<job_action>(suspend);
}

}  // namespace troupe::cli
