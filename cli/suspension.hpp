#pragma once

#include "cli/output.hpp"
#include "cli/remote.hpp"

// What `suspend` and `resume` have in common.

namespace troupe::cli {

/// As the controller sees the job now.
inline expected<job_status> status_of(remote& r, job_id job) {
  const auto reply = r.ask<query_reply>(query_jobs{0, job});
  if (!reply) return tl::unexpected<reason>(reply.error());
  if (reply->jobs.empty())
    return refuse(reason::kind::unknown, fmt::format("there is no job {}", job));
  return reply->jobs.front();
}

inline int refuse_suspension(output& out, job_id job, const reason& why) {
  out.document({{"job", job},
                {"moved", false},
                {"iteration", nullptr},
                {"pause_s", 0},
                {"lost_iterations", 0},
                {"reason", why.text}});
  return out.no(why);
}

}  // namespace troupe::cli
