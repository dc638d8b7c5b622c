#include "actors/serving/prefill/prefill_controller.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "messages/base/time.hpp"

namespace troupe::actors {

namespace {

constexpr double order_repeat_s = 0.1;     // orders and cancellations
constexpr double remember_verdict_s = 60;  // what was answered
constexpr std::size_t max_verdicts = 100'000;
constexpr double decides_ahead_s = 0.002;  // rule look-ahead: before a bubble begins

}  // namespace

bool prefill_controller::promise::over() const {
  return std::ranges::all_of(ended, [](bool e) { return e; });
}

prefill_controller::prefill_controller(shared_cluster c, std::uint32_t datacenter,
                                       std::uint64_t incarnation)
    : cluster_{std::move(c)}, datacenter_{datacenter}, incarnation_{incarnation} {}

/// The forecast's time: under look-ahead later than now, so that orders arrive before they can be
/// executed.
double prefill_controller::plan_time_s(const lending& l, double now_s) {
  return l.looks_ahead ? now_s + decides_ahead_s : now_s;
}

bool prefill_controller::is_local(address a) const {
  return is_node(*cluster_, a) && cluster_->nodes[node_of(a)].datacenter == datacenter_;
}

prefill_controller::outbox prefill_controller::on_message(address from, const message& m,
                                                          const payload& body, double now_s) {
  outbox out;
  const auto* all = std::get_if<serving_leases>(&m);
  if (all && from == controller_address) state(*all, now_s, out);
  if (const auto* o = std::get_if<bubble_offer>(&m)) on_offer(from, *o, now_s, out);
  if (const auto* s = std::get_if<stage_signal>(&m)) on_signal(from, *s, now_s);
  if (const auto* r = std::get_if<prefill_request>(&m)) on_request(from, *r, body, now_s, out);
  if (const auto* p = std::get_if<prefill_progress>(&m)) on_progress(from, *p, now_s, out);
  if (const auto* c = std::get_if<cancel_prefill>(&m)) on_cancel(from, *c, now_s, out);
  // Whatever has changed may let a prompt begin.
  for (auto& [lease, l] : lendings_) order_begun(l, now_s, out);
  return out;
}

const guest_group& prefill_controller::group_of(const promise& p) const {
  return lendings_.at(p.lease).offer.groups[p.group];
}

// ---- requests

void prefill_controller::decline(const prefill_request& r, address to, const std::string& why,
                                 outbox& out) {
  ++counts_.declined[why];
  out.push_back({to, prefill_reply{r.name, 0, {}, {reason::kind::insufficient, why}}});
}

void prefill_controller::on_request(address from, const prefill_request& r, const payload& body,
                                    double now_s, outbox& out) {
  constexpr std::uint32_t max_tokens = 1 << 20;
  const auto bytes = body.bytes().size();
  const bool sound = r.tokens > 0 && r.tokens <= max_tokens && std::isfinite(r.within_s) &&
                     (bytes == 0 || bytes == std::size_t{4} * r.tokens);
  if (from != r.name.decoder || !is_local(from) || !sound) return void(++counts_.rejected);
  if (auto ok = may_request(from, r); !ok) return reject(from, ok.error());
  if (const auto known = promises_.find(r.name); known != promises_.end()) {
    // The answer was lost, or this is late.
    const auto& p = known->second;
    prefill_reply again{r.name, std::max(0.0, p.end_s - now_s), {}, {}};
    for (const auto& g : group_of(p).guests) again.guests.push_back(g.node);
    out.push_back({from, again});
    return;
  }
  if (const auto old = verdicts_.find(r.name); old != verdicts_.end()) {
    if (!old->second.declined.text.empty())
      out.push_back({from, prefill_reply{r.name, 0, {}, old->second.declined}});
    return;
  }
  const auto why = decide(r, body, now_s, out);
  if (why.empty()) return;
  decline(r, from, why, out);
  remember(r.name, {reason::kind::insufficient, why}, now_s);
}

/// Promises it, or returns the reason why not. Lendings are asked in the order of their leases.
std::string prefill_controller::decide(const prefill_request& r, const payload& body, double now_s,
                                       outbox& out) {
  auto why = std::string{to_string(planners::decline_reason::no_guest_for_model)};
  for (auto& [lease, l] : lendings_) {
    if (l.offer.how.model.name != r.model) continue;
    roll(l, now_s);
    if (std::ranges::none_of(l.origin_s, [](const auto& o) { return o.has_value(); })) {
      why = l.paused.empty() ? to_string(planners::decline_reason::timetable_unknown)
                             : std::string{paused_by_delay_budget};
      continue;
    }
    allow_for_lateness(l, now_s);
    planners::prefill_prompt prompt;
    prompt.id = ++ids_;
    const double plan_s = plan_time_s(l, now_s);
    prompt.arrival_s = plan_s;
    prompt.tokens = r.tokens;
    const double allowance_s = usual_lateness_s(l);
    prompt.latest_s = r.within_s > 0 ? now_s + r.within_s - allowance_s : never;
    const auto promised = l.forecast.admit(prompt, plan_s);
    if (!promised) {
      why = to_string(promised.error());
      continue;
    }
    const auto guests = l.offer.groups[promised->group].guests.size();
    promise p{r.name,
              lease,
              promised->group,
              prompt.id,
              r.tokens,
              r.priority,
              body,
              now_s,
              promised->end_s + allowance_s,
              0,
              allowance_s,
              0,
              std::vector<bool>(guests),
              std::vector<bool>(guests),
              never};
    // The decoder gives up at twice the promise and a second more.
    p.latest_s = now_s + 2 * (p.end_s - now_s) + 2;
    prefill_reply yes{r.name, p.end_s - now_s, {}, {}};
    for (const auto& g : l.offer.groups[p.group].guests) yes.guests.push_back(g.node);
    out.push_back({r.name.decoder, yes});
    by_id_[p.id] = r.name;
    ++counts_.promised;
    auto& kept = promises_.emplace(r.name, std::move(p)).first->second;
    if (!l.looks_ahead) order(l, kept, promised->end_s, now_s, out);
    set_due(kept);
    return {};
  }
  return why;
}

/// Of rule look-ahead: what the forecast has begun.
void prefill_controller::order_begun(lending& l, double now_s, outbox& out) {
  if (!l.looks_ahead) return;
  for (const auto& begun : l.forecast.take_begun(plan_time_s(l, now_s))) {
    const auto name = by_id_.find(begun.id);
    if (name == by_id_.end()) continue;
    auto& p = promises_.at(name->second);
    if (p.sequence == 0) order(l, p, begun.end_s, now_s, out);
  }
}

/// For the first time.
void prefill_controller::order(lending& l, promise& p, double end_s, double now_s, outbox& out) {
  p.planned_s = end_s;
  l.ends.emplace(end_s, p.name);
  send_orders(p, now_s, out);
}

void prefill_controller::send_orders(promise& p, double now_s, outbox& out) {
  auto& l = lendings_.at(p.lease);
  if (p.sequence == 0) p.sequence = (incarnation_ << 32) + ++l.sequence;
  p.repeat_s = never;
  const auto& group = l.offer.groups[p.group];
  for (std::uint32_t i = 0; i < group.guests.size(); ++i) {
    if (p.held[i]) continue;
    p.repeat_s = now_s + order_repeat_s;
    prefill_order o{p.name, p.sequence, p.tokens, i, group, p.latest_s - now_s, p.priority};
    out.push_back({group.guests[i].node, std::move(o), i == 0 ? p.body : payload{}});
  }
  set_due(p);
}

/// Its place in the order of what is to be done.
void prefill_controller::set_due(promise& p) {
  const double due_s = std::min(p.repeat_s, p.latest_s);
  if (due_s == p.due_s) return;
  due_.erase({p.due_s, p.name});
  p.due_s = due_s;
  due_.emplace(due_s, p.name);
}

// ---- what guests and decoders say

void prefill_controller::on_progress(address from, const prefill_progress& p, double now_s,
                                     outbox& out) {
  if (const auto c = cancellations_.find(p.name); c != cancellations_.end()) {
    // A guest that never had the order does not know its number: its node counts.
    if (p.now != prefill_progress::state::held)
      std::erase_if(c->second.open, [&](const auto& guest) { return guest.second == from; });
    if (c->second.open.empty()) cancellations_.erase(c);
    return;
  }
  const auto at = promises_.find(p.name);
  if (at == promises_.end()) return;
  auto& known = at->second;
  const auto& guests = group_of(known).guests;
  const bool sound = std::isfinite(p.ended_ago_s) && p.ended_ago_s >= 0;
  if (p.guest >= guests.size() || guests[p.guest].node != from || !sound)
    return void(++counts_.rejected);
  const bool never_held = !known.held[p.guest];
  known.held[p.guest] = true;
  if (std::ranges::all_of(known.held, [](bool h) { return h; })) known.repeat_s = never;
  set_due(known);
  if (p.now == prefill_progress::state::held || known.ended[p.guest]) return;
  if (p.now == prefill_progress::state::gone) {
    auto& l = lendings_.at(known.lease);
    const auto& stage = guests[p.guest].stage;
    const bool is_paused = p.why.text.starts_with(paused_by_delay_budget);
    if (is_paused) l.paused.insert(l.device_of.at(stage));
    if (is_paused || never_held) close(l, stage, now_s);
    ++counts_.lost;
    auto refusal = p;
    out.push_back({p.name.decoder, refusal});
    return forget(p.name, now_s, true, out);
  }
  known.ended[p.guest] = true;
  // Blocks arrive later, by the time that their transfer takes.
  if (p.guest == 0 || p.guest + 1 == guests.size()) out.push_back({p.name.decoder, p});
  if (!known.over()) return;
  ++counts_.ended;
  lendings_.at(known.lease).lateness.add(now_s - p.ended_ago_s - (known.end_s - known.allowance_s));
  forget(p.name, now_s, false, out);
}

void prefill_controller::on_cancel(address from, const cancel_prefill& c, double now_s,
                                   outbox& out) {
  if (from != c.name.decoder || !is_local(from)) return void(++counts_.rejected);
  prefill_progress gone;
  gone.name = c.name;
  gone.now = prefill_progress::state::gone;
  out.push_back({from, gone});
  if (!promises_.contains(c.name)) return remember(c.name, {}, now_s);
  ++counts_.cancelled;
  forget(c.name, now_s, true, out);
}

/// `cancel`: its guests that have not ended are told.
void prefill_controller::forget(const prefill_name& name, double now_s, bool cancel, outbox& out) {
  const auto at = promises_.find(name);
  auto& p = at->second;
  auto& l = lendings_.at(p.lease);
  l.forecast.over(p.id, plan_time_s(l, now_s));
  if (cancel && p.sequence > 0) {
    auto& c = cancellations_[name];
    for (std::uint32_t i = 0; i < p.ended.size(); ++i)
      if (!p.ended[i]) c.open[i] = l.offer.groups[p.group].guests[i].node;
    c.until_s = p.latest_s;
    send_cancellation(name, c, now_s, out);
  }
  by_id_.erase(p.id);
  due_.erase({p.due_s, name});
  l.ends.erase({p.planned_s, name});
  promises_.erase(at);
  remember(name, {}, now_s);
}

void prefill_controller::send_cancellation(const prefill_name& name, cancellation& c, double now_s,
                                           outbox& out) {
  c.repeat_s = now_s + order_repeat_s;
  for (const auto& [guest, node] : c.open) out.push_back({node, cancel_prefill{name}});
}

void prefill_controller::remember(const prefill_name& name, reason declined, double now_s) {
  if (!verdicts_.insert_or_assign(name, verdict{now_s, std::move(declined)}).second) return;
  verdict_times_.emplace_back(now_s, name);
  while (!verdict_times_.empty() && (verdict_times_.front().first < now_s - remember_verdict_s ||
                                     verdict_times_.size() > max_verdicts)) {
    verdicts_.erase(verdict_times_.front().second);
    verdict_times_.pop_front();
  }
}

// ---- time

double prefill_controller::next_s() const {
  double next = never;
  if (!due_.empty()) next = due_.begin()->first;
  for (const auto& [name, c] : cancellations_) next = std::min(next, c.repeat_s);
  for (const auto& [lease, l] : lendings_) {
    next = std::min(next, l.last_seen_s + cluster_->settings.lease_s);
    if (l.looks_ahead) next = std::min(next, l.forecast.next_event_s() - decides_ahead_s);
  }
  return next;
}

prefill_controller::outbox prefill_controller::on_time(double now_s) {
  outbox out;
  for (auto it = lendings_.begin(); it != lendings_.end();) {
    const auto lease = it->first;
    const bool silent = it->second.last_seen_s + cluster_->settings.lease_s <= now_s;
    ++it;
    if (silent) withdraw(lease, now_s, out);
  }
  while (!due_.empty() && due_.begin()->first <= now_s) {
    auto& p = promises_.at(due_.begin()->second);
    if (p.latest_s > now_s) {
      send_orders(p, now_s, out);
      continue;
    }
    ++counts_.expired;
    forget(prefill_name{p.name}, now_s, true, out);
  }
  for (auto it = cancellations_.begin(); it != cancellations_.end();) {
    auto& [name, c] = *it;
    if (c.repeat_s <= now_s && c.until_s > now_s) send_cancellation(name, c, now_s, out);
    it = c.until_s <= now_s ? cancellations_.erase(it) : std::next(it);
  }
  for (auto& [lease, l] : lendings_) order_begun(l, now_s, out);
  return out;
}

}  // namespace troupe::actors
