#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "actors/control/ledger/bounded_reports.hpp"
#include "actors/control/ledger/elastic_attempts.hpp"
#include "actors/control/ledger/ends.hpp"
#include "actors/control/ledger/ledger.hpp"
#include "actors/control/ledger/retries.hpp"
#include "messages/admission/measured.hpp"
#include "messages/base/invariant.hpp"
#include "messages/domain/stated_length.hpp"
#include "messages/domain/work_kind.hpp"

// The ledger's part about ends: of parts, leases and jobs, what they count for, and whether the job
// goes on.

namespace troupe::actors {

namespace {

/// Severity of outcomes: which one counts if several parts differ.
bool is_bad(lease_outcome o) {
  return o != lease_outcome::succeeded;
}

/// Do leases with this outcome put their job back into the queue?
bool goes_on(lease_outcome o) {
  return o == lease_outcome::preempted || o == lease_outcome::lost ||
         o == lease_outcome::out_of_memory;
}

double gpu_s_of(const lease_part& part, const lease_granted& g, double at_s) {
  return static_cast<double>(part.devices.size()) * std::max(0.0, at_s - g.at_s);
}

}  // namespace

/// GPUs times the time for which the lease has held them.
double ledger::gpu_s_until(const lease_record& l, double at_s) const {
  const auto& tries = jobs_.at(l.granted.job).tries;
  double sum = tries.empty() || !tries.back().end ? 0 : tries.back().end->gpu_s;
  for (std::size_t i = 0; i < l.ended.size(); ++i)
    if (!l.ended[i]) sum += gpu_s_of(l.granted.parts[i], l.granted, at_s);
  TROUPE_INVARIANT(sum >= 0, "GPUs are held for no less than no time");
  return sum;
}

/// A training that heals goes on without a part that is lost, but for its trainer's.
bool ledger::goes_on_without(const lease_record& l, const part_ended& e) {
  return heals(l.granted) && e.part > 0 && !l.revoked && e.outcome == lease_outcome::lost;
}

/// The end of a part, as it counts for its lease.
void ledger::add_end(lease_record& l, const part_ended& e) {
  TROUPE_INVARIANT(e.part < l.ended.size() && !l.ended[e.part], "a part of a lease ends once");
  l.ended[e.part] = true;
  l.succeeded[e.part] = e.outcome == lease_outcome::succeeded;
  l.ended_with_zero[e.part] = e.exit_code == 0;
  if (goes_on_without(l, e)) return;
  l.iterations = std::min(l.iterations, e.iterations);
  if (admission::is_memory(e.peak_bytes)) l.peak_bytes = std::max(l.peak_bytes, e.peak_bytes);
  if (e.exit_code && l.exit_code.value_or(0) == 0) l.exit_code = e.exit_code;
  if (e.program) {
    auto& all = l.program ? *l.program : l.program.emplace();
    const auto end = bounded(*e.program);
    all.finished = all.finished || end.finished;
    if (end.saved) all.saved = std::min(all.saved.value_or(*end.saved), *end.saved);
    all.start_s = std::max(all.start_s, end.start_s);
    all.step_s = std::max(all.step_s, end.step_s);
    all.reached = std::max(all.reached, end.reached);
  }
  // The report of a part that failed because of another one's node, which was lost or has ended,
  // often arrives first.
  const auto word = word_of(e);
  const bool beside_a_loss = (e.outcome == lease_outcome::lost || word == end_word::node_stopped) &&
                             l.outcome == lease_outcome::failed && l.failed_part;
  if (is_bad(e.outcome) && (!is_bad(l.outcome) || beside_a_loss)) {
    l.outcome = e.outcome;
    l.word = word;
    l.detail = e.detail;
    l.failed_part = e.part;
    l.rank = e.rank;
  } else if (l.revoked && !is_failure(e.outcome) && e.exit_code.value_or(0) != 0 &&
             e.exit_code != 128 + 15 /* SIGTERM */ && !e.detail.empty() && e.detail != l.detail) {
    l.detail += (l.detail.empty() ? "" : "; ") + e.detail;  // it did not obey as it should
  }
}

expected<void> ledger::on(const part_ended& e) {
  const auto* held = lease(e.lease);
  if (!held || e.part >= held->ended.size() || held->ended[e.part])
    return contradiction("part {} of lease {} ends, but is not held", e.part, e.lease);
  auto l = *held;
  const auto& part = l.granted.parts[e.part];
  const double gpu_s = gpu_s_until(l, e.at_s);
  change_holders(part, [&](std::uint16_t d) {
    const auto now = holder(part.node, d), next = successor(part.node, d);
    TROUPE_INVARIANT(now == e.lease || next == e.lease,
                     "a part that ends holds its GPUs, or was to get them");
    successors_.erase({part.node, d});
    return now == e.lease ? next : now;
  });
  add_end(l, e);
  if (std::find(l.ended.begin(), l.ended.end(), false) != l.ended.end()) {
    // Kept with the attempt, as snapshots have it, until that is over.
    auto j = jobs_.at(l.granted.job);
    auto attempt = j.tries.back();
    TROUPE_INVARIANT(attempt.lease == e.lease,
                     "the attempt that is under way is that of the lease");
    if (!attempt.end) attempt.end = attempt_end{};
    attempt.end->gpu_s += gpu_s_of(part, l.granted, e.at_s);
    j.tries.replace_back(std::move(attempt));
    jobs_.set(j.id, std::move(j));
    leases_.set(e.lease, std::move(l));
    return {};
  }
  // Parts that succeeded before they were stopped, or while their node was considered lost, need
  // not be repeated.
  const auto all = [](const std::vector<bool>& parts) {
    return std::find(parts.begin(), parts.end(), false) == parts.end();
  };
  const bool whole = all(l.succeeded) ||
                     (l.program && l.program->finished && all(l.ended_with_zero)) ||
                     (heals(l.granted) && l.succeeded.front());
  if (whole && goes_on(l.outcome)) {
    l.outcome = lease_outcome::succeeded;
    l.word = end_word::finished;
    l.detail.clear();
  }
  close(std::move(l), {e.at_s, gpu_s});
  leases_.erase(e.lease);
  return {};
}

/// The iterations of a job that goes on after this lease: what its program has reported as saved,
/// or what all parts have done.
std::uint64_t ledger::done_after(const job_record& j, const lease_record& l) {
  if (!facts_of(*j.spec).has_end) return 0;
  const auto limit = iterations_or(*j.spec, std::numeric_limits<std::uint64_t>::max());
  const auto saved = l.program && l.program->saved ? l.program->saved : l.saved;
  if (saved) return std::min(*saved, limit);
  return j.progress.iterations_done +
         std::min(l.iterations, limit - std::min(limit, j.progress.iterations_done));
}

void ledger::close(lease_record l, attempt_over at) {
  const auto& known = jobs_.at(l.granted.job);
  TROUPE_INVARIANT(std::ranges::find(l.ended, false) == l.ended.end(),
                   "a lease is closed when all its parts have ended");
  TROUPE_INVARIANT(known.lease == l.granted.lease,
                   "a lease that is closed is its job's present one");
  for (const auto& part : l.granted.parts)
    for (const auto d : part.devices)
      TROUPE_INVARIANT(holder(part.node, d) != l.granted.lease,
                       "a lease that is over holds no GPU");
  if (known.members) return close_members(job_record{known}, l, at);
  const auto done = done_after(known, l);
  TROUPE_INVARIANT(
      done <= std::max(known.progress.iterations_done, iterations_or(*known.spec, done)),
      "an attempt takes a job no further than its last iteration");
  close_job(known, std::move(l), at, done);
}

/// A union is over with its lease, whatever the reason: each member that has not left waits again
/// as itself, or has ended as the lease has.
void ledger::close_members(const job_record& of_union, const lease_record& l, attempt_over at) {
  TROUPE_INVARIANT(of_union.members->jobs.size() >= 2, "a union has two members at least");
  at.gpu_s /= static_cast<double>(of_union.members->jobs.size());
  for (const auto* member : members_of(of_union)) {
    auto m = *member;
    m.in.reset();
    const auto done =
        m.progress.iterations_done + iterations_in_union(of_union, m.id, l.iterations);
    TROUPE_INVARIANT(done <= std::max(m.progress.iterations_done, m.spec->iterations),
                     "a union takes its members no further than their last iterations");
    auto own = l;
    if (l.word == end_word::suspended && !m.suspended) own.word = end_word::merged;
    close_job(std::move(m), std::move(own), at, done);
  }
  auto over = of_union;
  over.state = job_state::stopping;
  over.detail = l.detail;
  over.word = l.word;
  jobs_.set(over.id, over);
  closed_.set(over.id, l.outcome == lease_outcome::succeeded ? lease_outcome::succeeded
                                                             : lease_outcome::cancelled);
}

/// How the job's present attempt has ended.
void ledger::end_attempt(job_record& j, const lease_record& l, attempt_over at) {
  j.word = l.word;
  if (j.tries.empty()) return;
  auto attempt = j.tries.back();
  auto& end = attempt.end.emplace();
  end.why = l.word;
  end.started_s = l.granted.at_s;
  end.ended_s = at.at_s;
  end.gpu_s = at.gpu_s;
  TROUPE_INVARIANT(!l.failed_part || *l.failed_part < l.granted.parts.size(),
                   "the part that has failed is one of the lease that ends");
  if (l.failed_part) end.node = l.granted.parts[*l.failed_part].node;
  if (facts_of(*j.spec).has_processes && is_failure(l.outcome) && l.failed_part)
    end.rank = l.rank ? l.rank : only_rank_of(l.granted.parts, *l.failed_part);
  end.exit_code = l.exit_code;
  j.tries.replace_back(std::move(attempt));
}

/// `done`: the job's iterations, if it goes on.
void ledger::close_job(job_record j, lease_record l, attempt_over at, std::uint64_t done) {
  const bool merged = j.id != l.granted.job;
  TROUPE_INVARIANT(!is_final(j.state), "a job that has ended is not closed again");
  TROUPE_INVARIANT(!closed_.contains(j.id), "an attempt of a job is closed once");
  TROUPE_INVARIANT(!j.members, "a union is closed with its members, and not as a job");
  TROUPE_INVARIANT(j.progress.attempts > 0, "an attempt that ends was counted");
  const bool ran_out = l.outcome == lease_outcome::out_of_memory;
  j.progress.ran_s += std::max(0.0, at.at_s - l.granted.at_s);
  j.peak_bytes = l.peak_bytes;
  j.exit_code = l.exit_code;
  j.detail = l.detail;
  end_attempt(j, l, at);
  if (facts_of(*j.spec).has_processes && is_failure(l.outcome)) j.failed_rank = l.failed_part;
  // Predictions and measurements of every attempt that has both.
  if (!merged && (ran_out || l.peak_bytes > 0))
    j.memory.push_back({l.granted.how, l.granted.predicted_bytes, l.peak_bytes, ran_out});
  if (ran_out) {
    ++j.history.out_of_memory;
    // The memory of several jobs says nothing of one.
    if (merged)
      j.history.alone = true;
    else
      raise_memory(j, l.granted);
  }
  if (j.elastic)
    add_attempt(*j.elastic, *j.spec, l, gpu_type_of(l.granted), at.at_s,
                goes_on(l.outcome) ? done : std::max(done, j.progress.iterations_done));
  // A decoder is started again even if it fails: it has no result that the failure would be.
  const bool falls = facts_of(*j.spec).restarts_after_failure && l.outcome == lease_outcome::failed;
  if (goes_on(l.outcome) || falls || is_repeated(j, l)) {
    const auto before = std::exchange(j.progress.iterations_done, done);
    j.state = job_state::waiting;
    auto why = count_end(j, l, at.at_s, j.progress.iterations_done > before);
    if (why.empty()) {
      if (l.outcome == lease_outcome::lost && !merged) {
        j.lost_parts = l.granted.parts;
        j.lost_succeeded = l.succeeded;
        TROUPE_INVARIANT(j.lease == l.granted.lease,
                         "a lost lease is the one that its job has had");
        lost_.set(j.lease, j.id);
      }
      return jobs_.set(j.id, std::move(j));
    }
    j.detail = fmt::format("{}; most recently: {}", why, l.detail);
    j.not_before_s.reset();
    l.outcome = lease_outcome::failed;
  }
  // Without a stated number it has done what its program has reported.
  const auto reached = l.program ? l.program->reached.value_or(0) : 0;
  if (l.outcome == lease_outcome::succeeded)
    j.progress.iterations_done =
        iterations_at_end(*j.spec, std::max({j.progress.iterations_done, done, reached}));
  j.state = job_state::stopping;
  closed_.set(j.id, l.outcome);
  jobs_.set(j.id, std::move(j));
}

/// Does `retries` repeat the job after this end, if any are left?
bool ledger::is_repeated(const job_record& j, const lease_record& l) {
  const auto rule = retry_rule_of(*j.spec);
  return rule && is_failure(l.outcome) && is_repeated_after(*rule, l.word, l.exit_code);
}

/// Counts the end of an attempt of a job that may go on: `retries` those that are the job's fault,
/// `max_restarts` those of its nodes, and nothing what people and policies do. Returns why it does
/// not go on; empty: it does, perhaps after a while. `saved`: it has newly saved iterations.
std::string ledger::count_end(job_record& j, const lease_record& l, double at_s, bool saved) {
  const auto& spec = *j.spec;
  const auto work = facts_of(spec);
  const double ran_s = at_s - l.granted.at_s;
  if (saved) j.progress.retried = 0;
  const bool progress = saved || ran_s >= work.proof_s;
  if (progress) j.progress.losses = 0;
  if (is_repeated(j, l)) {
    const auto rule = *retry_rule_of(spec);
    // `elastic` by itself does not count an attempt that has saved.
    if (saved && !spec.program.retries) return {};
    if (++j.progress.retried > rule.attempts)
      return fmt::format("failed ({}) in {} attempt{} ({} {})", end_text(l.word, l.exit_code),
                         j.progress.retried, j.progress.retried == 1 ? "" : "s",
                         spec.program.retries ? "retries" : "elastic.retries", rule.attempts);
    if (rule.delay_s > 0) j.not_before_s = at_s + backoff_s(rule, j.progress.retried, j.id);
    return {};
  }
  const bool by_node = l.outcome == lease_outcome::lost && blame_of(l.word) == blame::node;
  const bool falls = work.restarts_after_failure && l.outcome == lease_outcome::failed;
  if (progress || !(by_node || falls)) return {};
  // The job itself may be what takes its nodes down.
  if (++j.progress.losses > spec.limits.max_restarts)
    return fmt::format("{} in {} consecutive attempts {} (max_restarts {})",
                       work.restarts_after_failure       ? "its decoder failed, or lost its node,"
                       : l.word == end_word::not_started ? "did not start, or lost its node,"
                                                         : "lost its node",
                       j.progress.losses,
                       work.restarts_after_failure
                           ? fmt::format("of less than {:g} s", work.proof_s)
                           : "without progress",
                       spec.limits.max_restarts);
  // Once may be bad luck: another program had the port by then.
  if (l.word == end_word::not_started && j.progress.losses > 1)
    j.not_before_s = at_s + backoff_s(not_started_rule(), j.progress.losses - 1, j.id);
  return {};
}

/// The ledger makes the entry, and the orchestrator records it: a controller that dies between the
/// two finds it due at its next start.
std::unique_ptr<job_ended> ledger::due(job_id id, double now_s) const {
  const auto* outcome = closed_.find(id);
  if (!outcome) return nullptr;
  auto result = std::make_unique<job_ended>();
  result->job = id;
  result->at_s = now_s;
  result->detail = jobs_.at(id).detail;
  TROUPE_INVARIANT(jobs_.at(id).state == job_state::stopping, "a job whose end is due is stopping");
  result->final_state = *outcome == lease_outcome::succeeded   ? job_state::finished
                        : *outcome == lease_outcome::cancelled ? job_state::cancelled
                                                               : job_state::failed;
  return result;
}

expected<void> ledger::on(const member_ended& e) {
  const auto* known = job(e.job);
  if (!known || !known->in) return contradiction("job {} leaves a union, but is in none", e.job);
  TROUPE_INVARIANT(lease_of(*known), "a member's union holds its lease");
  const auto& held = *lease(known->lease);
  auto alone = held;
  alone.outcome = e.outcome;
  alone.word = word_of(e);
  alone.detail = e.detail;
  const auto members = jobs_.at(held.granted.job).members->jobs.size();
  TROUPE_INVARIANT(members >= 2, "a member leaves a union of two at least");
  const double gpu_s = gpu_s_until(held, e.at_s) / static_cast<double>(members);
  auto j = *known;
  j.in.reset();
  close_job(std::move(j), std::move(alone), {e.at_s, gpu_s},
            known->progress.iterations_done + e.iterations);
  return {};
}

expected<void> ledger::on(const job_ended& e) {
  const auto* known = job(e.job);
  if (!known) return contradiction("job {} ends, but was never accepted", e.job);
  auto j = *known;
  if (is_final(j.state)) return contradiction("job {} ends twice", e.job);
  // Its GPUs would be free while its programs run.
  if (lease_of(j)) return contradiction("job {} ends while it holds GPUs", e.job);
  j.state = e.final_state;
  if (j.state == job_state::finished)
    j.progress.iterations_done = iterations_at_end(*j.spec, j.progress.iterations_done);
  lost_.erase(j.lease);
  j.lost_parts.clear();
  j.lost_succeeded.clear();
  j.ended_s = e.at_s;
  j.detail = e.detail;
  j.word = word_of(e, j.word);
  j.not_before_s.reset();
  closed_.erase(e.job);
  jobs_.set(e.job, std::move(j));
  TROUPE_INVARIANT(unfinished_ > 0, "a job that ends was counted as unfinished");
  --unfinished_;
  return {};
}

}  // namespace troupe::actors
