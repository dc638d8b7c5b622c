#include "actors/training/lending/stage_lending.hpp"

#include <algorithm>
#include <utility>

#include "messages/base/invariant.hpp"
#include "messages/wire/task_kind.hpp"

namespace troupe::actors {

namespace {

planners::window_plan plan_of(const stage_setup& s) {
  constexpr std::size_t tail = 2;  // the copy of the gradients, and the update
  const auto& t = s.guest->times;
  return {t.busy, s.order.size() + tail, t.iteration_s, t.window, t.barrier_s};
}

}  // namespace

// The waits of an earlier order do not predict this one's.
void stage_lending::on_plan(const stage_setup& s) {
  setup_ = &s;
  if (!o_.executor || !s.guest) return;
  constexpr double ms = 1e-3;
  const auto& how = s.guest->how;
  clock_ = planners::step_clock{plan_of(s)};
  knows_wait_ = false;
  budget_ = {how.guard_ms * ms, how.delay_budget, o_.times_vary};
  o_.executor->set_guard(budget_.guard_s());
  o_.executor->pause(false);
}

void stage_lending::on_times(const stage_setup& s) {
  if (o_.executor && s.guest) clock_.plan(plan_of(s));
}

void stage_lending::on_idle(std::uint64_t iteration, std::size_t operation) {
  if (!o_.executor || lent_since_s_) return;
  const double now_s = o_.host.now_s();
  lent_since_s_ = now_s;
  const double idle_s = clock_.earliest_s(iteration, operation, now_s, budget_.leave_out()) - now_s;
  if (idle_s > 0 && !budget_.paused()) o_.executor->idle_for(idle_s);
}

double stage_lending::on_busy(std::uint64_t iteration, std::optional<std::size_t> operation) {
  if (!o_.executor) return 0;
  const double idle_s = lent_since_s_ ? o_.host.now_s() - *lent_since_s_ : 0;
  lent_since_s_.reset();
  idle_s_ += idle_s;
  // The wait before the first iteration of a plan is for others to be ready.
  if (operation && std::exchange(knows_wait_, true)) clock_.waited(iteration, *operation, idle_s);
  return o_.executor->busy();
}

/// For the timetable of the prefill controller, which orders nothing of a paused guest until then.
void stage_lending::on_iteration_begun(std::uint64_t iteration) {
  if (!o_.executor || budget_.paused()) return;
  TROUPE_INVARIANT(setup_ != nullptr, "bubbles are lent after the guest's setup");
  o_.host.send(o_.gateway, stage_signal{setup_->name, setup_->incarnation, iteration, 0,
                                        o_.executor->guest_time_factor()});
}

/// The next guard follows from the delays of this iteration.
void stage_lending::on_iteration_ended(stage_report& r) {
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

/// For the timeline. The executor's clock may be another one: its counts carry the time at which
/// they were taken.
void stage_lending::record_prefills(stage_report& r, const gpu::executor_counts& c) const {
  TROUPE_INVARIANT(setup_ != nullptr, "a guest begins after its setup");
  if (!setup_->trace) return;
  const double ahead_s = c.taken_s - o_.host.now_s();
  for (const auto& i : c.intervals)
    r.tasks.push_back(
        task_of(task_kind::prefill, i.prompt, i.begin_s - ahead_s, i.end_s - ahead_s));
}

}  // namespace troupe::actors
