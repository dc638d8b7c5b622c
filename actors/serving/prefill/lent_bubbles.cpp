#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "actors/serving/prefill/prefill_controller.hpp"
#include "messages/base/time.hpp"
#include "planners/bubbletea/window_plan.hpp"

// What trainings lend to a prefill controller: offers, and when their stages really begin.

namespace troupe::actors {

namespace {

// Windows are known that far ahead; anew when a quarter of it is over.
constexpr double iterations_ahead = 8, windows_ahead_s = 60;
// A bubble ends, and its prompts are ordered, as the stage's signal says, which took up to that.
constexpr double signal_late_s = 2e-4;
// Prompts that are later than planned by more than the way of the news.
constexpr double late_after_s = 0.005;

bool is_time_span(double s) {
  constexpr double max_s = 1e9;
  return s >= 0 && s < max_s;
}

double ahead_s(const bubble_offer& o) {
  // Of short iterations not too many: each has windows.
  constexpr double max_iterations = 2000;
  return std::max(iterations_ahead * o.iteration_s,
                  std::min(windows_ahead_s, max_iterations * o.iteration_s));
}

planners::packing_options options_of(const bubble_lending& how) {
  auto o = planners::packing_of(how).value_or(planners::packing_options{});
  o.in_order = o.rule != planners::packing_rule::look_ahead;
  // A decoder gives up at twice the promise and a second more.
  o.patience = 2;
  o.patience_s = 0.5;
  return o;
}

bool valid(const busy_time& b) {
  constexpr double max_s = 1e9;
  return std::abs(b.begin_s) < max_s && b.end_s >= b.begin_s && b.end_s < max_s;
}

}  // namespace

/// Of groups in this datacenter, with the timetable of each guest's stage.
bool prefill_controller::valid(const bubble_offer& o) const {
  constexpr std::size_t max_guests = 100'000, max_steps = 100'000;
  std::set<stage_name> timed, lent;
  if (!(o.iteration_s > 0) || !is_time_span(o.iteration_s) || !planners::packing_of(o.how))
    return false;
  if (!is_time_span(o.how.guard_ms) || !is_time_span(o.how.op_ms)) return false;
  if (o.shown == 0 || (o.window > 0 && (o.window < o.shown || !(o.window_s > 0))) ||
      !is_time_span(o.window_s))
    return false;
  for (const auto& s : o.stages) {
    if (s.busy.empty() || s.busy.size() > max_steps || s.busy.size() % o.shown != 0 ||
        !std::ranges::all_of(s.busy, actors::valid))
      return false;
    const auto by_begin = [](const busy_time& a, const busy_time& b) {
      return a.begin_s < b.begin_s;
    };
    if (!std::ranges::is_sorted(s.busy, by_begin)) return false;
    timed.insert(s.stage);
  }
  for (const auto& group : o.groups) {
    if (group.guests.empty() || !is_time_span(group.hop_token_s) ||
        !is_time_span(group.hop_latency_s))
      return false;
    for (const auto& g : group.guests)
      if (g.stage.lease != o.lease || !is_local(g.node) || g.layers == 0 ||
          !is_time_span(g.token_s) || !is_time_span(g.pair_s) || !is_time_span(g.half_tokens) ||
          !timed.contains(g.stage) || !lent.insert(g.stage).second || lent.size() > max_guests)
        return false;
  }
  return true;
}

// ---- who may decode and lend

void prefill_controller::reject(address from, const reason& why) {
  ++counts_.rejected;
  // Before the first statement it is this controller that does not know.
  if (leases_.epoch > 0) rejections_.push_back({from, why.text});
}

void prefill_controller::state(const serving_leases& s, double now_s, outbox& out) {
  if (!s.is_newer_than(leases_)) return;
  leases_ = s;
  std::vector<lease_id> over;
  for (const auto& [lease, l] : lendings_) {
    const auto* lends = lease_of(l.offer);
    if (!lends || !may_offer(node_address(lends->nodes.front()), l.offer)) over.push_back(lease);
  }
  for (const auto lease : over) withdraw(lease, now_s, out);
}

const lending_lease* prefill_controller::lease_of(const bubble_offer& o) const {
  const auto at = std::ranges::find(leases_.lendings, o.lease, &lending_lease::lease);
  return at == leases_.lendings.end() || at->nodes.empty() ? nullptr : &*at;
}

/// The trainer of a lease, which alone speaks for it, and that for its own nodes and model.
expected<void> prefill_controller::may_offer(address from, const bubble_offer& o) const {
  const auto failure = [&](const std::string& why) {
    return refuse(reason::kind::refused, fmt::format("{} offers bubbles of lease {}, {}",
                                                     host_name(*cluster_, from), o.lease, why));
  };
  const auto* lends = lease_of(o);
  if (!lends) return failure("which lends none by the controller");
  const auto is = [&](node_index n, address a) { return node_address(n) == a; };
  if (!is(lends->nodes.front(), from)) return failure("whose trainer is on another node");
  if (!o.groups.empty() && o.how.model.name != lends->model)
    return failure(
        fmt::format("which lends to '{}', not to '{:.64}'", lends->model, o.how.model.name));
  for (const auto& group : o.groups)
    for (const auto& g : group.guests)
      if (std::ranges::none_of(lends->nodes, [&](node_index n) { return is(n, g.node); }))
        return failure(
            fmt::format("with a guest on {}, where it has no part", host_name(*cluster_, g.node)));
  return {};
}

expected<void> prefill_controller::may_request(address from, const prefill_request& r) const {
  for (const auto& d : leases_.decoders)
    if (d.lease == r.name.lease && node_address(d.node) == from &&
        d.model < leases_.models.size() && leases_.models[d.model].name == r.model)
      return {};
  return refuse(reason::kind::refused,
                fmt::format("{} asks for a prefill for lease {}, which is no decoder's of '{:.64}' "
                            "there by the controller",
                            host_name(*cluster_, from), r.name.lease, r.model));
}

// ---- offers

void prefill_controller::on_offer(address from, const bubble_offer& o, double now_s, outbox& out) {
  if (auto ok = may_offer(from, o); !ok) return reject(from, ok.error());
  const auto known = lendings_.find(o.lease);
  if (known != lendings_.end()) {
    const auto& has = known->second.offer;
    const std::array is{o.trainer, o.sequence}, was{has.trainer, has.sequence};
    if (is < was) return;
    if (is == was) {
      known->second.last_seen_s = now_s;
      return;
    }
  }
  if (o.groups.empty()) return withdraw(o.lease, now_s, out);
  if (!valid(o)) return void(++counts_.rejected);
  // The same guests keep their promises: only the times are new.
  const bool same = known != lendings_.end() && known->second.offer.trainer == o.trainer &&
                    known->second.offer.groups == o.groups && known->second.offer.how == o.how;
  if (!same) withdraw(o.lease, now_s, out);
  auto& l = lendings_[o.lease];
  l.last_seen_s = now_s;
  if (!same) adopt(l, o, now_s);
  l.offer = o;
  l.period_s = planners::repeated_after_s(o);
  l.looks_ahead = o.how.rule == to_string(planners::packing_rule::look_ahead);
  for (const auto& s : o.stages) {
    const auto at = l.device_of.find(s.stage);
    if (at == l.device_of.end()) continue;
    auto& busy = l.busy[at->second];
    // Signals are of the first step's begin, which may have moved.
    if (same && l.origin_s[at->second])
      *l.origin_s[at->second] += busy.front().begin - s.busy.front().begin_s;
    busy = planners::repeated_busy_times(o, s);
    plan_windows(l, at->second, now_s);
  }
}

/// A lending that was not known.
void prefill_controller::adopt(lending& l, const bubble_offer& o, double) {
  std::vector<planners::prefill_group> groups;
  std::uint32_t devices = 0;
  for (std::uint32_t g = 0; g < o.groups.size(); ++g) {
    for (const auto& p : o.groups[g].guests) {
      l.device_of[p.stage] = devices++;
      l.group_of.push_back(g);
    }
    const auto count = static_cast<std::uint32_t>(o.groups[g].guests.size());
    groups.push_back(planners::planned_group(o.groups[g], devices - count));
  }
  l.origin_s.resize(devices);
  l.lent_from_s.resize(devices);
  l.iteration.resize(devices);
  l.factor.assign(devices, 1.0);
  l.busy.resize(devices);
  l.known_until_s.resize(devices);
  l.forecast =
      planners::prefill_forecast{options_of(o.how), std::move(groups), devices, o.max_tokens};
}

void prefill_controller::on_signal(address from, const stage_signal& s, double now_s) {
  const auto at = lendings_.find(s.stage.lease);
  if (at == lendings_.end() || at->second.offer.trainer != s.trainer || !is_time_span(s.ago_s))
    return;
  auto& l = at->second;
  const auto device = l.device_of.find(s.stage);
  if (device == l.device_of.end()) return;
  const auto d = device->second;
  const auto& guests = l.offer.groups[l.group_of[d]].guests;
  const auto place = std::ranges::find(guests, s.stage, &guest_place::stage);
  if (place->node != from) return void(++counts_.rejected);
  const auto min = l.iteration[d] + (l.origin_s[d] ? 1 : 0);
  if (s.iteration < min) return;  // repeated, or late
  const double began_s = now_s - s.ago_s;
  if (!l.origin_s[d]) l.lent_from_s[d] = began_s + l.offer.iteration_s;
  l.iteration[d] = s.iteration;
  l.paused.erase(d);
  l.origin_s[d] = began_s - planners::first_step_s(l.offer, l.busy[d], s.iteration);
  plan_windows(l, d, now_s);
  if (s.guest_factor) correct_times(l, d, *s.guest_factor, now_s);
}

/// The guest has measured its operations.
void prefill_controller::correct_times(lending& l, std::uint32_t device, double factor,
                                       double now_s) {
  constexpr double min = 1e-6, max = 1e6;
  constexpr double enough = 0.05;  // smaller changes are not worth a new plan
  if (!(factor >= min && factor <= max)) return void(++counts_.rejected);
  auto& known = l.factor[device];
  if (std::abs(factor - known) <= enough * known) return;
  known = factor;
  l.forecast.set_factor(device, factor, plan_time_s(l, now_s));
}

void prefill_controller::plan_windows(lending& l, std::uint32_t device, double now_s) {
  if (!l.origin_s[device]) return;
  const double until_s = now_s + ahead_s(l.offer);
  l.known_until_s[device] = until_s;
  // A piece that runs now began in a window that began before.
  const double from_s = std::max(now_s - l.offer.iteration_s, l.lent_from_s[device]);
  auto windows = from_s < until_s ? planners::repeated_windows(
                                        l.busy[device], l.period_s, *l.origin_s[device], from_s,
                                        until_s, l.offer.how.guard_ms * 1e-3 + signal_late_s)
                                  : planners::idle_windows{};
  l.forecast.set_windows(device, std::move(windows), plan_time_s(l, now_s));
}

/// The stage's guest takes no prompts: its device has no windows until the stage's next iteration.
void prefill_controller::close(lending& l, const stage_name& stage, double now_s) {
  const auto d = l.device_of.at(stage);
  if (!l.origin_s[d]) return;
  l.origin_s[d] = {};
  ++l.iteration[d];
  l.forecast.set_windows(d, {}, plan_time_s(l, now_s));
}

/// Without signals the timetable goes on as it was.
void prefill_controller::roll(lending& l, double now_s) {
  for (std::uint32_t d = 0; d < l.busy.size(); ++d)
    if (l.origin_s[d] && l.known_until_s[d] < now_s + 0.75 * ahead_s(l.offer))
      plan_windows(l, d, now_s);
}

/// A group whose prompts should have ended, but have not, is as late for the next ones.
void prefill_controller::allow_for_lateness(lending& l, double now_s) {
  std::map<std::uint32_t, double> late_s;
  for (const auto& [end_s, name] : l.ends) {
    if (end_s + late_after_s >= now_s) break;
    late_s.try_emplace(promises_.at(name).group, now_s - end_s);
  }
  for (const auto& [group, by_s] : late_s) l.forecast.late(group, by_s, plan_time_s(l, now_s));
}

/// Real guests are more careful than the plan and leave some bubbles out: what is promised allows
/// for it, the plan does not, so that bubbles of which guests make more are used.
double prefill_controller::usual_lateness_s(const lending& l) {
  const double usual_s = l.lateness.value(0);
  return usual_s > late_after_s ? usual_s : 0;
}

void prefill_controller::withdraw(lease_id lease, double now_s, outbox& out) {
  const auto at = lendings_.find(lease);
  if (at == lendings_.end()) return;
  std::vector<prefill_name> broken;
  for (const auto& [name, p] : promises_)
    if (p.lease == lease) broken.push_back(name);
  for (const auto& name : broken) {
    ++counts_.lost;
    prefill_progress gone;
    gone.name = name;
    gone.now = prefill_progress::state::gone;
    gone.why = {reason::kind::unavailable, "its training no longer lends bubbles"};
    out.push_back({name.decoder, gone});
    forget(name, now_s, true, out);
  }
  lendings_.erase(at);
}

}  // namespace troupe::actors
