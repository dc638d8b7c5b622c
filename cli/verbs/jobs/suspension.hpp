#pragma once

#include <nlohmann/json.hpp>

#include "cli/connection/controller_connection.hpp"
#include "cli/output/output.hpp"
#include "cli/verbs/jobs/job_action.hpp"
#include "runtime/host/pause.hpp"
#include "runtime/host/stopwatch.hpp"

// Shared by `suspend`, `resume`, `requeue` and `move`.

namespace troupe::cli {

/// The controller's view of the job.
inline expected<job_status> status_of(remote& r, job_id job) {
  const auto reply = r.ask<query_reply>(query_jobs{0, job});
  if (!reply) return refuse(reply.error());
  if (reply->jobs.empty()) return refuse(reason::kind::unknown, fmt::format("no job {}", job));
  return reply->jobs.front();
}

/// Waits until the attempt of `before` holds no GPUs; the job may have a later one by then.
inline expected<job_status> wait_for_stop(remote& r, const job_status& before) {
  constexpr double look_every_s = 0.1;
  auto now = status_of(r, before.job);
  while (now && (now->state == job_state::running || now->state == job_state::stopping) &&
         now->progress.attempts == before.progress.attempts) {
    runtime::pause(look_every_s);
    now = status_of(r, before.job);
  }
  return now;
}

inline reason ended_meanwhile(const job_status& j) {
  return {reason::kind::invalid, fmt::format("job {} has {} meanwhile", j.job, to_string(j.state))};
}

/// Iterations that were reported before the stop and must be repeated.
inline std::uint64_t lost_iterations(const job_status& before, const job_status& now) {
  return std::max(before.iteration, now.progress.iterations_done) - now.progress.iterations_done;
}

/// " after iteration 40"; of a program that has reported none, nothing.
inline std::string after_iteration(const job_status& j) {
  if (has_processes(j) && j.progress.iterations_done == 0 && j.iteration == 0) return {};
  return fmt::format(" after iteration {}", j.progress.iterations_done);
}

/// The document of these verbs; `iteration` is null if nothing was changed.
inline nlohmann::json suspension(job_id job, nlohmann::json iteration, double pause_s,
                                 std::uint64_t lost_iterations, const std::string& why = {}) {
  return {{"job", job},
          {"moved", !iteration.is_null()},
          {"iteration", std::move(iteration)},
          {"pause_s", pause_s},
          {"lost_iterations", lost_iterations},
          {"reason", why}};
}

inline job_result not_done(job_id job, const reason& why) {
  return {suspension(job, nullptr, 0, 0, why.text), "", why};
}

inline int refuse_suspension(output& out, job_id job, const reason& why) {
  out.document(suspension(job, nullptr, 0, 0, why.text));
  return out.failure(why);
}

}  // namespace troupe::cli
