#include "actors/control/status/ended_attempts.hpp"

#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "actors/control/ledger/retries.hpp"

namespace troupe::actors {

namespace {

/// "12:01:40 UTC": the journal's times are those of its wall clock.
std::string time_of_day(double at_s) {
  const auto s = static_cast<std::int64_t>(std::ceil(at_s)) % 86'400;
  return fmt::format("{:02}:{:02}:{:02} UTC", s / 3600, s / 60 % 60, s % 60);
}

/// The attempt that is under way has begun its end if parts of it are over.
std::size_t ended_attempts(const ledger& book, const job_record& j) {
  return j.tries.size() - (book.lease_of(j) && !j.tries.empty() ? 1 : 0);
}

}  // namespace

std::optional<double> retry_in_s(const job_record& j, double now_s) {
  if (j.state != job_state::waiting || !j.not_before_s || *j.not_before_s <= now_s) return {};
  return *j.not_before_s - now_s;
}

/// The latest: a list of thousands of jobs has to fit into one answer.
void add_ends(job_status& s, const job_record& j, const ledger& book, double now_s) {
  constexpr std::size_t shown = 20;
  s.why = j.word;
  s.retry_in_s = retry_in_s(j, now_s);
  const auto ended = ended_attempts(book, j);
  std::vector<attempt_end> ends;
  const auto tries = j.tries.all();
  for (auto i = ended - std::min(ended, shown); i < ended; ++i)
    if (tries[i].end) ends.push_back(*tries[i].end);
  if (!ends.empty()) s.ends = std::move(ends);
}

std::string backoff_text(const cluster& c, const job_record& j) {
  const auto* end = j.tries.empty() || !j.tries.back().end ? nullptr : &*j.tries.back().end;
  std::string how = end ? end_text(end->why, end->exit_code) : "failed";
  if (end && end->node && *end->node < c.nodes.size())
    how += fmt::format(" on {}", c.nodes[*end->node].name);
  const auto next = fmt::format("the next not before {}", time_of_day(*j.not_before_s));
  const auto rule = retry_rule_of(*j.spec);
  if (end && end->why == end_word::not_started)
    return fmt::format("attempt {} was not started ({}: {}); {}", j.progress.attempts, how,
                       j.detail, next);
  return fmt::format("attempt {} of {} failed ({}); {}", j.progress.retried,
                     rule ? rule->attempts + 1 : j.progress.retried, how, next);
}

}  // namespace troupe::actors
