#include <algorithm>

#include "actors/control/scheduler.hpp"

// The scheduler's part about time: its rounds, and jobs that wait before their next attempt.

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
  const double round_s = options_.policy->round_s();
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

}  // namespace troupe::actors
