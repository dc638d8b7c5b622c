#include "simulation/oracle.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "actors/control/ledger/ends.hpp"
#include "messages/domain/work_kind.hpp"

// The oracle's part about words: which ends count, worked out from the journal's entries alone.

namespace troupe::simulation {

/// The first thing that ended the lease; a part that failed beside a node that was lost, or that
/// ended, did so because of that.
void oracle::note_why(lease_view& l, const part_ended& e) {
  l.with_zero = l.with_zero && e.exit_code == 0;
  l.finished = l.finished || (e.program && e.program->finished);
  if (e.outcome == lease_outcome::succeeded) return;
  const auto word = actors::word_of(e);
  const bool by_node = e.outcome == lease_outcome::lost || word == end_word::node_stopped;
  const bool beside = by_node && l.by_part && actors::outcome_of(*l.why) == lease_outcome::failed;
  if (l.why && !beside) return;
  l.why = word;
  l.by_part = true;
}

/// Only what a node does, without progress, makes the row longer.
void oracle::count_loss(const lease_view& l, job_view& j, double at_s, bool progress) {
  const bool whole =
      std::ranges::all_of(
          l.parts, [](const part_view& p) { return p.outcome == lease_outcome::succeeded; }) ||
      (l.finished && l.with_zero) ||
      (l.granted.heals.value_or(false) && l.parts.front().outcome == lease_outcome::succeeded);
  if (whole || !l.why) return;
  const auto outcome = actors::outcome_of(*l.why);
  if (outcome == lease_outcome::failed || outcome == lease_outcome::cancelled) return;  // it ends
  constexpr double proof_s = 600;  // a program that has run for so long has made progress
  const bool long_enough = facts_of(j.spec).has_processes && at_s - l.granted.at_s >= proof_s;
  if (progress || long_enough)
    j.losses = 0;
  else if (blame_of(*l.why) == blame::node)
    ++j.losses;
}

/// Compares them with the ledger's, and says of a job that failed by its losses whether it may.
void oracle::check_counts(const actors::ledger& book) {
  for (const auto& [id, j] : jobs_) {
    const auto* known = book.job(id);
    if (!known || j.members) continue;
    if (known->progress.losses != j.losses)
      fail("job {} has lost its node {} times in a row by its ends, and the ledger counts {}", id,
           j.losses, known->progress.losses);
    const bool too_often = known->state == job_state::failed && known->word == end_word::lost_node;
    if (too_often && j.losses <= j.spec.limits.max_restarts)
      fail("job {} has failed after {} losses in a row, and may have {}", id, j.losses,
           j.spec.limits.max_restarts);
    if (j.losses > j.spec.limits.max_restarts && !is_final(known->state))
      fail("job {} goes on after {} losses in a row, and may have {}", id, j.losses,
           j.spec.limits.max_restarts);
  }
}

}  // namespace troupe::simulation
