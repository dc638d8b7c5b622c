#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "messages/domain/end.hpp"
#include "messages/wire/journal.hpp"
#include "messages/wire/work.hpp"

// Outcomes and words. A word (messages/domain/end.hpp) says why something has ended; the outcome of
// a lease says what follows for its job. Entries and reports have a word only where it says more
// than their outcome or state.

namespace troupe::actors {

/// The rank of a program's part with one GPU. None: it has several, and only a launcher knows.
inline std::optional<std::uint32_t> only_rank_of(const std::vector<lease_part>& parts,
                                                 std::uint32_t part) {
  if (part >= parts.size() || parts[part].devices.size() != 1) return {};
  std::uint32_t rank = 0;
  for (std::uint32_t p = 0; p < part; ++p)
    rank += static_cast<std::uint32_t>(parts[p].devices.size());
  return rank;
}

/// The word of an outcome without one.
constexpr end_word word_of(lease_outcome o) {
  switch (o) {
    case lease_outcome::succeeded:
      return end_word::finished;
    case lease_outcome::failed:
      return end_word::exit;
    case lease_outcome::out_of_memory:
      return end_word::out_of_memory;
    case lease_outcome::preempted:
      return end_word::preempted;
    case lease_outcome::cancelled:
      return end_word::cancelled;
    case lease_outcome::lost:
      return end_word::lost_node;
  }
  return end_word::exit;
}

/// The outcome of an end with this word. Beside the words that are outcomes themselves it follows
/// from who is to blame.
constexpr lease_outcome outcome_of(end_word w) {
  for (const auto o : {lease_outcome::succeeded, lease_outcome::out_of_memory,
                       lease_outcome::cancelled, lease_outcome::preempted})
    if (word_of(o) == w) return o;
  switch (blame_of(w)) {
    case blame::job:
      return lease_outcome::failed;
    case blame::node:
      return lease_outcome::lost;
    case blame::people:
    case blame::policy:
      return lease_outcome::preempted;
    case blame::nobody:
      break;
  }
  return lease_outcome::succeeded;
}

/// The word as a field beside an outcome: none if that implies it.
constexpr std::optional<end_word> word_beside(lease_outcome o, end_word w) {
  return w == word_of(o) ? std::nullopt : std::optional{w};
}

inline end_word word_of(const lease_revoked& e) {
  return e.word.value_or(word_of(e.why));
}
inline end_word word_of(const part_ended& e) {
  return e.word.value_or(word_of(e.outcome));
}
inline end_word word_of(const member_ended& e) {
  return e.word.value_or(word_of(e.outcome));
}

/// `last`: the word of the job's last attempt, if it had one. One that never ran was cancelled, or
/// had no plan.
inline end_word word_of(const job_ended& e, std::optional<end_word> last) {
  if (e.word) return *e.word;
  if (e.final_state == job_state::finished) return end_word::finished;
  if (e.final_state == job_state::cancelled) return end_word::cancelled;
  return last && outcome_of(*last) != lease_outcome::preempted ? *last : end_word::infeasible;
}

/// The word of a part that has ended by itself.
inline end_word word_of(const part_report& r) {
  if (r.word) return *r.word;
  switch (r.now) {
    case part_report::state::succeeded:
      return end_word::finished;
    case part_report::state::failed:
      return end_word::exit;
    case part_report::state::out_of_memory:
      return end_word::out_of_memory;
    case part_report::state::not_started:
      return end_word::not_started;
    default:
      return end_word::lost_node;  // its node stopped it: it has no contact with the controller
  }
}

/// Entries of ends, whose outcome follows from the word.
inline lease_revoked make_revocation(lease_id lease, double at_s, end_word why, std::string detail,
                                     double grace_s = 0) {
  const auto outcome = outcome_of(why);
  return {lease, at_s, outcome, std::move(detail), grace_s, {}, {}, word_beside(outcome, why)};
}
inline part_ended make_part_end(lease_id lease, std::uint32_t part, double at_s, end_word why,
                                std::string detail) {
  const auto outcome = outcome_of(why);
  return {lease, part, at_s, outcome, 0, 0, std::move(detail), {}, {}, word_beside(outcome, why),
          {}};
}
/// For a job that holds no GPUs. `last`: the word of its last attempt, which is its own unless the
/// entry says more.
inline job_ended make_job_end(job_id job, double at_s, end_word why, std::string detail,
                              std::optional<end_word> last = {}) {
  const auto outcome = outcome_of(why);
  const auto state = outcome == lease_outcome::succeeded   ? job_state::finished
                     : outcome == lease_outcome::cancelled ? job_state::cancelled
                                                           : job_state::failed;
  job_ended e{job, at_s, state, std::move(detail), {}};
  if (why != word_of(e, last)) e.word = why;
  return e;
}

}  // namespace troupe::actors
