#include "actors/serving/prefill/lent_bubbles.hpp"

#include <algorithm>
#include <cmath>

#include "messages/base/find_in.hpp"
#include "messages/base/invariant.hpp"
#include "planners/bubbletea/window_plan.hpp"

namespace troupe::actors {

namespace {

// Windows are planned for that long, and planned anew when a quarter of it is over: often enough
// that a prompt's deadline is within them, and seldom enough that planning costs little.
constexpr double iterations_ahead = 8, windows_ahead_s = 60;
// A bubble ends, and its prompts are ordered, by the stage's signal, which may take that long.
constexpr double signal_late_s = 2e-4;
// A prompt counts as late only beyond the time that the report of its end may take.
constexpr double late_after_s = 0.005;

double ahead_s(const bubble_offer& o) {
  // Each iteration has windows: short iterations are not planned for the whole minute.
  constexpr double max_iterations = 2000;
  return std::max(iterations_ahead * o.iteration_s,
                  std::min(windows_ahead_s, max_iterations * o.iteration_s));
}

/// The rule of the offer. Prompts of a group run in the order of their promises unless the rule
/// looks ahead, and a promise may be late by what its decoder tolerates, less half a second for
/// transfers (prefill_attempt: it gives up after twice the promise and one second).
planners::packing_options options_of(const bubble_lending& how) {
  auto o = planners::packing_of(how).value_or(planners::packing_options{});
  o.in_order = o.rule != planners::packing_rule::look_ahead;
  o.patience = 2;
  o.patience_s = 0.5;
  return o;
}

}  // namespace

lent_bubbles::lent_bubbles(const bubble_offer& o)
    : offer_{o}, looks_ahead_{o.how.rule == to_string(planners::packing_rule::look_ahead)} {
  std::vector<planners::prefill_group> groups;
  for (std::uint32_t g = 0; g < o.groups.size(); ++g) {
    const auto first = static_cast<std::uint32_t>(devices_.size());
    for (const auto& guest : o.groups[g].guests) {
      device_of_[guest.stage] = static_cast<std::uint32_t>(devices_.size());
      devices_.emplace_back().group = g;
    }
    groups.push_back(planners::planned_group(o.groups[g], first));
  }
  forecast_ = planners::prefill_forecast{options_of(o.how), std::move(groups), devices_.size(),
                                         o.max_tokens};
}

bool lent_bubbles::has_guests_of(const bubble_offer& o) const {
  return offer_.trainer == o.trainer && offer_.groups == o.groups && offer_.how == o.how;
}

void lent_bubbles::update(const bubble_offer& o, double now_s) {
  TROUPE_INVARIANT(has_guests_of(o), "an offer is replaced by one of the same guests");
  offer_ = o;
  period_s_ = planners::repeated_after_s(o);
  for (const auto& s : o.stages) {
    const auto* number = find_in(device_of_, s.stage);
    if (!number) continue;
    auto& d = devices_[*number];
    // Signals are of the first step's begin, which the new timetable may have moved.
    TROUPE_INVARIANT(!s.busy.empty() && (!d.origin_s || !d.busy.empty()),
                     "an offer that was accepted shows when each stage is busy");
    if (d.origin_s) *d.origin_s += d.busy.front().begin - s.busy.front().begin_s;
    d.busy = planners::repeated_busy_times(o, s);
    plan_windows(*number, now_s);
  }
}

/// The forecast's time: under look-ahead later than now, so that orders arrive before they can be
/// executed.
double lent_bubbles::plan_time_s(double now_s) const {
  return looks_ahead_ ? now_s + decides_ahead_s : now_s;
}

// ---- devices and their windows

// A signal anchors the timetable: the plan's times are relative to the begin of an iteration's
// first step, which the stage reports. Iterations only grow; what is repeated or late is ignored.
bool lent_bubbles::on_signal(address from, const stage_signal& s, double now_s) {
  constexpr double max_ago_s = 1e9;
  const auto* number = find_in(device_of_, s.stage);
  if (offer_.trainer != s.trainer || !number) return true;
  if (!(s.ago_s >= 0 && s.ago_s < max_ago_s)) return true;
  TROUPE_INVARIANT(*number < devices_.size(), "a guest's device is one of the lending");
  auto& d = devices_[*number];
  const auto& guests = offer_.groups[d.group].guests;
  if (std::ranges::find(guests, s.stage, &guest_place::stage)->node != from) return false;
  if (s.iteration < d.iteration + (d.origin_s ? 1 : 0)) return true;
  const double began_s = now_s - s.ago_s;
  if (!d.origin_s) d.lent_from_s = began_s + offer_.iteration_s;
  d.iteration = s.iteration;
  d.paused = false;
  d.origin_s = began_s - planners::first_step_s(offer_, d.busy, s.iteration);
  plan_windows(*number, now_s);
  return !s.guest_factor || correct_times(*number, *s.guest_factor, now_s);
}

/// The guest has measured its operations. Changes of less than a twentieth are not worth a new
/// plan of all prompts.
bool lent_bubbles::correct_times(std::uint32_t d, double factor, double now_s) {
  constexpr double min = 1e-6, max = 1e6, enough = 0.05;
  if (!(factor >= min && factor <= max)) return false;
  auto& known = devices_[d].factor;
  if (std::abs(factor - known) <= enough * known) return true;
  known = factor;
  forecast_.set_factor(d, factor, plan_time_s(now_s));
  return true;
}

void lent_bubbles::plan_windows(std::uint32_t d, double now_s) {
  auto& of = devices_[d];
  if (!of.origin_s) return;
  const double until_s = now_s + ahead_s(offer_);
  of.known_until_s = until_s;
  // A piece that runs now began in a window that began before.
  const double from_s = std::max(now_s - offer_.iteration_s, of.lent_from_s);
  auto windows = from_s < until_s
                     ? planners::repeated_windows(of.busy, period_s_, *of.origin_s, from_s, until_s,
                                                  offer_.how.guard_ms * 1e-3 + signal_late_s)
                     : planners::idle_windows{};
  forecast_.set_windows(d, std::move(windows), plan_time_s(now_s));
}

void lent_bubbles::close(const stage_name& stage, bool paused, double now_s) {
  const auto d = device_of_.at(stage);
  auto& of = devices_[d];
  of.paused |= paused;
  if (!of.origin_s) return;
  of.origin_s = {};
  ++of.iteration;
  forecast_.set_windows(d, {}, plan_time_s(now_s));
}

/// Without signals the timetable goes on as it was.
void lent_bubbles::extend_windows(double now_s) {
  for (std::uint32_t d = 0; d < devices_.size(); ++d)
    if (devices_[d].origin_s && devices_[d].known_until_s < now_s + 0.75 * ahead_s(offer_))
      plan_windows(d, now_s);
}

// ---- prompts

// Lateness enters a promise twice. A group whose prompts should have ended by now, but have not,
// is late by at least that much for the next ones, so the forecast is shifted. And real guests are
// more careful than the plan and leave some bubbles out: the promise to the decoder allows for the
// usual lateness, while the plan does not, so that bubbles longer than planned are also used.

tl::expected<lent_bubbles::promise, std::string> lent_bubbles::admit(const prefill_name& name,
                                                                     std::uint32_t tokens,
                                                                     double latest_s,
                                                                     double now_s) {
  extend_windows(now_s);
  if (std::ranges::none_of(devices_, [](const device& d) { return d.origin_s.has_value(); }))
    return tl::unexpected{
        std::string{std::ranges::any_of(devices_, &device::paused)
                        ? paused_by_delay_budget
                        : to_string(planners::decline_reason::timetable_unknown)}};
  allow_for_lateness(now_s);
  const double allowance_s = usual_lateness_s();
  planners::prefill_prompt prompt;
  prompt.id = ++ids_;
  prompt.arrival_s = plan_time_s(now_s);
  prompt.tokens = tokens;
  prompt.latest_s = latest_s - allowance_s;
  const auto planned = forecast_.admit(prompt, prompt.arrival_s);
  if (!planned) return tl::unexpected{std::string{to_string(planned.error())}};
  prompts_[name] = {prompt.id, planned->group, never};
  by_id_[prompt.id] = name;
  TROUPE_INVARIANT(by_id_.size() == prompts_.size(),
                   "each promised prompt has a number in the forecast");
  return promise{planned->group, planned->end_s, allowance_s};
}

void lent_bubbles::allow_for_lateness(double now_s) {
  std::map<std::uint32_t, double> late_s;
  for (const auto& [end, group] : ends_) {
    if (end.first + late_after_s >= now_s) break;
    late_s.try_emplace(group, now_s - end.first);
  }
  for (const auto& [group, by_s] : late_s) forecast_.late(group, by_s, plan_time_s(now_s));
}

double lent_bubbles::usual_lateness_s() const {
  const double usual_s = lateness_.value(0);
  return usual_s > late_after_s ? usual_s : 0;
}

void lent_bubbles::ordered(const prefill_name& name, double end_s) {
  auto& p = prompts_.at(name);
  TROUPE_INVARIANT(p.end_s == never, "a prompt is ordered once");
  p.end_s = end_s;
  ends_.emplace(std::pair{end_s, name}, p.group);
}

std::vector<std::pair<prefill_name, double>> lent_bubbles::take_begun(double now_s) {
  std::vector<std::pair<prefill_name, double>> all;
  if (!looks_ahead_) return all;
  for (const auto& begun : forecast_.take_begun(plan_time_s(now_s)))
    if (const auto* name = find_in(by_id_, begun.id)) all.emplace_back(*name, begun.end_s);
  return all;
}

double lent_bubbles::next_s() const {
  return looks_ahead_ ? forecast_.next_event_s() - decides_ahead_s : never;
}

void lent_bubbles::over(const prefill_name& name, double now_s) {
  const auto at = prompts_.find(name);
  TROUPE_INVARIANT(at != prompts_.end(), "a prompt that is over had been promised");
  const auto& p = at->second;
  forecast_.over(p.id, plan_time_s(now_s));
  by_id_.erase(p.id);
  ends_.erase({p.end_s, name});
  prompts_.erase(at);
}

}  // namespace troupe::actors
