#include <algorithm>
#include <exception>

#include "actors/control/scheduling/scheduler.hpp"
#include "messages/base/find_in.hpp"
#include "messages/base/invariant.hpp"
#include "messages/domain/work_kind.hpp"

// The scheduler's parts about time, which are its rounds and jobs that wait before their next
// attempt, and about what a policy is shown.

namespace troupe::actors {

void scheduler_state::decide_again_in(double seconds) {
  if (seconds <= 0) return;
  constexpr double min_s = 1e-3;  // longer than rounding makes the delay too short
  seconds = std::max(seconds, min_s);
  const double at_s = host_.clock->now_s() + seconds;
  if (again_at_s_ && *again_at_s_ <= at_s) return;
  again_at_s_ = at_s;
  send_later(self_, seconds, tick{});
}

void scheduler_state::on(const tick&) {
  const double round_s = options_.policy->traits().round_s;
  if (round_s == 0) {
    if (again_at_s_ && *again_at_s_ <= host_.clock->now_s() + timer_rounding_s) again_at_s_.reset();
    return decide_soon();
  }
  begin_round();
  send_later(self_, round_s, tick{});
}

// -- jobs that wait before their next attempt

bool scheduler_state::waits_for_retry(const job_record& j) const {
  return j.state == job_state::waiting && j.not_before_s && *j.not_before_s > journal_time_s();
}

/// One timer, for the earliest.
void scheduler_state::set_backoff_timer() {
  if (backoffs_.empty()) return;
  constexpr double min_s = 1e-3;  // longer than rounding makes the delay too short
  const double now_s = host_.clock->now_s();
  const double at_s = std::max(backoffs_.begin()->first - state_->journal_ahead_s, now_s + min_s);
  if (backoff_timer_s_ && *backoff_timer_s_ <= at_s) return;
  backoff_timer_s_ = at_s;
  send_later(self_, at_s - now_s, backoffs_due{});
}

/// A job that is not waiting any more, or whose wait has ended otherwise, is as it should be.
void scheduler_state::on(const backoffs_due&) {
  backoff_timer_s_.reset();
  while (!backoffs_.empty() && backoffs_.begin()->first <= journal_time_s()) {
    const auto id = backoffs_.begin()->second;
    backoffs_.erase(backoffs_.begin());
    if (const auto* j = book().job(id); j && !is_final(j->state)) update_views(*j);
  }
  set_backoff_timer();
}

// -- what a policy is shown

/// Whether a list has the job, and it is not plain (snapshot::all_plain). A policy that fails here
/// fails again where it decides, and there the failure is handled.
void scheduler_state::note_kind(job_id id) {
  const auto is_placed = [&](const planners::job_view& v) {
    try {
      return options_.policy->places(*v.spec, v.training);
    } catch (const std::exception&) {
      return false;
    }
  };
  const auto is_other = [&](const planners::job_views& views) {
    const auto* v = find_in(views, id);
    return v && (facts_of(*v->spec).has_own_rules || !is_placed(*v));
  };
  if (is_other(waiting_) || is_other(running_) || is_other(moving_))
    not_plain_.insert(id);
  else
    not_plain_.erase(id);
}

planners::snapshot scheduler_state::policy_snapshot() {
  planners::snapshot s{journal_time_s(), cluster(), pending_.rest(*state_->idle, not_kept_),
                       waiting_,         running_,  moving_,
                       unusable_,        {},        {},
                       unions_};
  s.changed_s = changed_s_ + state_->journal_ahead_s;
  s.arrivals = arrivals_;
  s.shared_cluster = state_->cluster;
  s.changes = &view_changes_;
  s.all_plain = not_plain_.empty();
  s.without_torch = *state_->without_torch;
  s.notes = options_.explains ? &notes_ : nullptr;
  if (checks_slow_invariants()) check_views();
  return s;
}

/// A policy is shown what the ledger says.
void scheduler_state::check_views() const {
  const auto has_state = [&](const planners::job_views& views, job_state s) {
    return std::ranges::all_of(views, [&](const auto& v) {
      const auto* j = book().job(v.first);
      return j && j->state == s && v.second.id == v.first;
    });
  };
  TROUPE_INVARIANT(has_state(waiting_, job_state::waiting), "a job that policies place waits");
  TROUPE_INVARIANT(has_state(running_, job_state::running), "a job that policies may stop runs");
  TROUPE_INVARIANT(has_state(unions_, job_state::running), "a union that policies see runs");
  for (const auto& [id, v] : moving_) {
    TROUPE_INVARIANT(pending_.find(id), "a job that policies see moving has GPUs reserved");
    TROUPE_INVARIANT(!waiting_.contains(id) && !running_.contains(id),
                     "a job with reserved GPUs is neither placed nor stopped by policies");
  }
}

void scheduler_state::remember_arrival(const job_record& j, const plans_reply& p) {
  // Forecasts look at the newest arrivals only. Dropping half at a time makes the cost constant.
  constexpr std::size_t max_arrivals = 256;
  if (arrivals_.size() >= 2 * max_arrivals)
    arrivals_.erase(arrivals_.begin(), arrivals_.end() - max_arrivals);
  arrivals_.push_back({j.submitted_s, j.spec, p.plans});
}

}  // namespace troupe::actors
