#include "actors/control/leases/time_limits.hpp"

#include <algorithm>
#include <iterator>
#include <optional>

#include <fmt/format.h>

#include "actors/control/ledger/unions.hpp"
#include "messages/base/invariant.hpp"
#include "messages/domain/stated_length.hpp"
#include "messages/domain/work_kind.hpp"

namespace troupe::actors {

namespace {

/// The job's own limit, or that of the cluster; a decoder runs until it is cancelled.
std::optional<double> time_limit_s(const cluster& c, const job_spec& spec) {
  if (!facts_of(spec).has_end) return {};
  return spec.limits.time_limit_s ? spec.limits.time_limit_s : c.settings.time_limit_s;
}

}  // namespace

void time_limits::remember_deadline(const job_record& j) {
  if (j.spec->limits.deadline_s && !is_final(j.state))
    deadlines_.emplace(j.submitted_s + *j.spec->limits.deadline_s, j.id);
}

void time_limits::remember_limit(const lease_record& l) {
  const auto remember = [&](const job_record& j) {
    if (const auto limit_s = time_limit_s(records_.present_cluster(), *j.spec))
      limits_.emplace(l.granted.at_s + std::max(0.0, *limit_s - j.progress.ran_s), l.granted.lease,
                      j.id);
  };
  TROUPE_INVARIANT(records_.book().job(l.granted.job),
                   "a lease with a time limit is of a known job");
  const auto& j = *records_.book().job(l.granted.job);
  if (!j.members) return remember(j);
  for (const auto* m : records_.book().members_of(j)) remember(*m);
}

void time_limits::follow_cluster() {
  limits_.clear();
  for (const auto& [id, l] : records_.book().leases()) remember_limit(l);
}

/// A job that is late is ended: after its deadline it is of no use. A running one is remembered
/// until its lease has ended, since a preemption that was under way may queue it once more.
void time_limits::end_overdue() {
  const auto& book = records_.book();
  for (auto it = deadlines_.begin(); it != deadlines_.end() && it->first <= records_.wall();) {
    const auto* known = book.job(it->second);
    if (!known || is_final(known->state)) {
      it = deadlines_.erase(it);
      continue;
    }
    const auto j = *known;
    const auto stated = stated_iterations(*j.spec);
    TROUPE_INVARIANT(j.spec->limits.deadline_s, "a deadline that is remembered is its job's");
    const auto text =
        fmt::format("its deadline has passed: deadline_s is {:g}, {} after {}{} iterations",
                    *j.spec->limits.deadline_s, to_string(j.state), j.progress.iterations_done,
                    stated ? fmt::format(" of {}", *stated) : "");
    if (j.state == job_state::waiting) {
      records_.record(make_job_end(j.id, records_.wall(), end_word::deadline, text, j.word));
    } else if (const auto* l = book.lease_of(j); l && !l->revoked) {
      leases_.revoke(j.lease, end_word::deadline, text);
    }
    it = is_final(book.job(j.id)->state) ? deadlines_.erase(it) : std::next(it);
  }
}

/// A job that has run for longer than its limit, over all attempts; a training saves first.
void time_limits::end_long_runs() {
  const auto& c = records_.present_cluster();
  while (!limits_.empty() && std::get<double>(*limits_.begin()) <= records_.wall()) {
    const auto [at_s, id, job] = *limits_.begin();
    limits_.erase(limits_.begin());
    const auto* l = records_.book().lease(id);
    const auto* known = records_.book().job(job);
    if (!l || l->revoked || !known || records_.book().lease_of(*known) != l) continue;
    const auto j = *known;
    TROUPE_INVARIANT(time_limit_s(c, *j.spec),
                     "a time limit that is remembered is its job's or the cluster's");
    TROUPE_INVARIANT(j.progress.ran_s >= 0, "a job has not run for less than no time");
    const auto text = fmt::format(
        "its time limit has passed: time_limit_s is {:g}, it ran {:.0f} s in {} attempt{}",
        *time_limit_s(c, *j.spec), j.progress.ran_s + records_.wall() - l->granted.at_s,
        j.progress.attempts, j.progress.attempts == 1 ? "" : "s");
    if (j.in) {
      leases_.end_member(job, end_word::time_limit, text);
      continue;
    }
    leases_.revoke(make_revocation(
        id, records_.wall(), end_word::time_limit, text,
        facts_of(*j.spec).stops_by == stop_way::halt ? c.settings.preempt_grace_s : 0));
  }
}

}  // namespace troupe::actors
