#include "cli/connection/job_endings.hpp"

#include <algorithm>
#include <set>

#include "cli/output/human.hpp"
#include "runtime/host/pause.hpp"
#include "runtime/host/stopwatch.hpp"
#include "web/dashboard/job_json.hpp"

namespace troupe::cli {

namespace {

/// The part of the job whose output has the reason of its failure; logs are by part.
std::uint32_t failed_part(remote& cluster, const job_status& j) {
  if (!j.failed_node) return 0;
  const auto now = cluster.ask<query_reply>(query_jobs{0, j.job});
  if (!now) return 0;
  for (std::uint32_t part = 0; part < j.where.size(); ++part)
    if (const auto n = j.where[part].node;
        n < now->nodes.size() && now->nodes[n].name == *j.failed_node)
      return part;
  return 0;
}

}  // namespace

expected<void> wait_for_jobs(remote& cluster, const std::vector<job_id>& jobs,
                             const std::function<void(const query_reply&)>& each,
                             const std::function<void(const job_status&)>& waits) {
  constexpr double poll_s = 0.2;
  // A job that starts within this time needs no words.
  constexpr double silent_s = 1;
  const runtime::stopwatch since;
  std::set<job_id> left{jobs.begin(), jobs.end()}, seen, said;
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
      if (waits && j.state == job_state::waiting && since.s() > silent_s && said.insert(id).second)
        waits(j);
      if (!is_final(j.state)) continue;
      left.erase(id);
      each(*reply);
    }
    if (left.empty()) return {};
    runtime::pause(poll_s);
  }
}

last_output last_output_of(remote& cluster, const job_status& j, std::size_t max_lines) {
  constexpr std::uint64_t max_bytes = 4096, end_of_log = std::uint64_t{1} << 62;
  last_output last;
  if (j.progress.attempts == 0) return last;  // without an attempt there is no log
  last.part = failed_part(cluster, j);
  // An offset beyond the end is answered with the log's length.
  const auto about = cluster.ask<log_chunk>(read_log{0, j.job, 0, last.part, end_of_log});
  if (!about || !about->why.text.empty()) return last;
  const auto from = about->offset - std::min(about->offset, max_bytes);
  if (!cluster.ask<log_chunk>(read_log{0, j.job, 0, last.part, from})) return last;
  const auto raw = cluster.raw().bytes();
  const std::string tail{reinterpret_cast<const char*>(raw.data()), raw.size()};
  auto& lines = last.lines;
  for (std::size_t at = 0; at < tail.size();) {
    const auto end = std::min(tail.find('\n', at), tail.size());
    if (end > at) lines.push_back(tail.substr(at, end - at));
    at = end + 1;
  }
  if (lines.size() > max_lines)
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(max_lines));
  return lines.empty() ? last_output{} : last;
}

void note_output(const output& out, remote& cluster, const job_status& j) {
  if (j.state != job_state::failed || !has_processes(j) || j.progress.attempts == 0) return;
  const auto last = last_output_of(cluster, j, 1);
  if (last.lines.empty()) return;
  out.note("  its last line: {}", printable(last.lines.front()));
  out.note("  `troupe logs {}{}` shows its output", j.job,
           last.part > 0 ? fmt::format(" --rank {}", last.part) : "");
}

void note_waiting(const output& out, remote& cluster, const job_status& j) {
  const auto about = cluster.ask<explanation>(explain_job{0, j.job});
  const auto why = about && about->job.job != 0 ? about->summary : j.waiting_reason;
  out.note("troupe: job {} ({}) waits: {}", j.job, j.name, why);
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
         {"attempts", j.progress.attempts},
         {"out_of_memory", j.history.out_of_memory},
         {"failed_rank", j.failed_rank ? json(*j.failed_rank) : json()},
         {"failed_node", j.failed_node ? json(*j.failed_node) : json()},
         {"detail", j.detail}};
  web::add_ends(d, r.nodes, j);
  return d;
}

}  // namespace troupe::cli
