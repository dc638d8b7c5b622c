#include "cli/common/job_endings.hpp"

#include <set>

#include "runtime/host/pause.hpp"
#include "web/dashboard/job_json.hpp"

namespace troupe::cli {

expected<void> wait_for_jobs(remote& cluster, const std::vector<job_id>& jobs,
                             const std::function<void(const query_reply&)>& each) {
  constexpr double poll_s = 0.2;
  std::set<job_id> left{jobs.begin(), jobs.end()}, seen;
  for (;;) {
    for (const auto id : std::vector<job_id>{left.begin(), left.end()}) {
      const auto reply = cluster.ask<query_reply>(query_jobs{0, id});
      if (!reply) return refuse(reply.error());
      if (reply->jobs.empty()) {
        // A controller that has just restarted does not know its jobs yet.
        if (seen.contains(id)) continue;
        return refuse(reason::kind::unknown, fmt::format("no job {}", id));
      }
      seen.insert(id);
      const auto& j = reply->jobs.front();
      if (!is_final(j.state)) continue;
      left.erase(id);
      each(*reply);
    }
    if (left.empty()) return {};
    runtime::pause(poll_s);
  }
}

// The program's own code passes through, so that scripts can use `troupe wait` like the program
// itself.
int exit_status_of(const job_status& j) {
  if (j.state == job_state::finished) return exit_done;
  const auto code = j.exit_code.value_or(0);
  return j.state == job_state::failed && code >= 1 && code <= 255 ? code : exit_no;
}

std::string ending_text(const job_status& j) {
  const auto* verb = j.state == job_state::cancelled ? "was" : "has";
  const bool has_detail = j.state != job_state::finished && !j.detail.empty();
  return fmt::format("job {} ({}) {} {}{}{}", j.job, j.name, verb, to_string(j.state),
                     has_detail ? ": " : "", has_detail ? j.detail : "");
}

json ending_document(const query_reply& r) {
  const auto& j = r.jobs.front();
  json d{{"job", j.job},
         {"name", j.name},
         {"state", to_string(j.state)},
         {"exit_code", j.exit_code ? json(*j.exit_code) : json()},
         {"attempts", j.attempts},
         {"out_of_memory", j.out_of_memory.value_or(0)},
         {"failed_rank", j.failed_rank ? json(*j.failed_rank) : json()},
         {"failed_node", j.failed_node ? json(*j.failed_node) : json()},
         {"detail", j.detail}};
  web::add_ends(d, r.nodes, j);
  return d;
}

}  // namespace troupe::cli
