// A stage with a guest: when its device is idle, and for how long.
#include <algorithm>
#include <utility>

#include "actors/training/stage.hpp"
#include "messages/wire/task_kind.hpp"

namespace troupe::actors {

namespace {

planners::window_plan plan_of(const stage_setup& s) {
  constexpr std::size_t tail = 2;  // the copy of the gradients, and the update
  const auto& t = s.guest->times;
  return {t.busy, s.order.size() + tail, t.iteration_s, t.window, t.barrier_s};
}

}  // namespace

/// Of a plan, which is new: nothing is known of its waits yet.
void stage_state::begin_lending() {
  if (!o_.executor || !o_.setup.guest) return;
  constexpr double ms = 1e-3;
  const auto& [how, place, times] = *o_.setup.guest;
  clock_ = planners::step_clock{plan_of(o_.setup)};
  knows_wait_ = false;
  budget_ = {how.guard_ms * ms, how.delay_budget, executor_->times_vary()};
  o_.executor->set_guard(budget_.guard_s());
  o_.executor->pause(false);
}

/// The plan's times have changed.
void stage_state::take_times(const stage_run& r) {
  if (!o_.executor || !o_.setup.guest || !r.guest_times) return;
  o_.setup.guest->times = *r.guest_times;
  clock_.plan(plan_of(o_.setup));
}

/// The device is idle, and waits for the input of this operation, numbered as in
/// stage_timetable::busy. May be repeated.
void stage_state::lend(std::size_t operation) {
  if (!o_.executor || busy_ || failed_ || device_released_ || lent_since_s_) return;
  const double now_s = o_.messenger.now_s();
  lent_since_s_ = now_s;
  const double idle_s =
      clock_.earliest_s(of_window(), operation, now_s, budget_.leave_out()) - now_s;
  if (idle_s > 0 && !budget_.paused()) o_.executor->idle_for(idle_s);
}

/// The device is needed. Returns how long its operation has to wait for one of the guest's.
double stage_state::take_back() {
  if (!o_.executor) return 0;
  const double idle_s = lent_since_s_ ? o_.messenger.now_s() - *lent_since_s_ : 0;
  lent_since_s_.reset();
  idle_s_ += idle_s;
  // The wait before the first iteration of a plan is for others to be ready.
  if (const auto number = operation_number(); number && std::exchange(knows_wait_, true))
    clock_.waited(of_window(), *number, idle_s);
  return o_.executor->busy();
}

/// The present iteration, counted from the last barrier. One that waits there belongs to what
/// follows.
std::uint64_t stage_state::of_window() const {
  return iteration_ < until_ ? iteration_ - window_began_ : 0;
}

/// Of the operation that is being submitted; none: it is not of every iteration.
std::optional<std::size_t> stage_state::operation_number() const {
  const auto steps = o_.setup.order.size();
  if (phase_ == phase::steps) return next_;
  if (phase_ == phase::gradients) return steps;
  if (phase_ == phase::update) return steps + 1;
  return {};
}

/// For the timetable of the prefill controller, which orders nothing of a paused guest until then.
void stage_state::signal_begin() {
  if (!o_.executor || budget_.paused()) return;
  o_.messenger.send(o_.gateway, stage_signal{o_.setup.name, o_.setup.incarnation, iteration_, 0,
                                             o_.executor->guest_time_factor()});
}

/// At an iteration's end: what its guest has used and delayed, from which the next guard follows.
void stage_state::add_use(stage_report& r) {
  if (!o_.executor) return;
  const auto c = o_.executor->take_counts();
  record_prefills(r, c);
  budget_.add_iteration(std::max(0.0, r.end_s - r.begin_s), c.delay_s);
  o_.executor->set_guard(budget_.guard_s());
  o_.executor->pause(budget_.paused());
  r.bubbles =
      bubble_use{c.guest_steps,   c.guest_s,         c.delayed,        c.delay_s,
                 c.worst_delay_s, budget_.guard_s(), budget_.paused(), std::exchange(idle_s_, 0)};
  if (c.delayed > 0) r.bubbles->delays = c.delays;
}

/// For the timeline: by this host's clock, as record_task().
void stage_state::record_prefills(stage_report& r, const gpu::executor_counts& c) const {
  if (!o_.setup.trace) return;
  const double ahead_s = c.taken_s - o_.messenger.now_s();
  for (const auto& i : c.intervals)
    r.tasks.push_back(
        task_of(task_kind::prefill, i.prompt, i.begin_s - ahead_s, i.end_s - ahead_s));
}

}  // namespace troupe::actors
