#pragma once

#include <nlohmann/json.hpp>

#include "cli/common/controller_connection.hpp"
#include "cli/common/output.hpp"

// Shared by `suspend`, `resume` and `move`.

namespace troupe::cli {

/// The controller's view of the job.
inline expected<job_status> status_of(remote& r, job_id job) {
  const auto reply = r.ask<query_reply>(query_jobs{0, job});
  if (!reply) return refuse(reply.error());
  if (reply->jobs.empty()) return refuse(reason::kind::unknown, fmt::format("no job {}", job));
  return reply->jobs.front();
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

inline int refuse_suspension(output& out, job_id job, const reason& why) {
  out.document(suspension(job, nullptr, 0, 0, why.text));
  return out.no(why);
}

}  // namespace troupe::cli
