#include "actors/serving/prefill/prefill_controller.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "messages/base/find_in.hpp"
#include "messages/base/invariant.hpp"

namespace troupe::actors {

namespace {

constexpr double order_repeat_s = 0.1;     // orders and cancellations
constexpr double remember_verdict_s = 60;  // answers
constexpr std::size_t max_verdicts = 100'000;

bool all_set(const std::vector<bool>& v) {
  return std::ranges::all_of(v, [](bool b) { return b; });
}

prefill_progress gone_of(const prefill_name& name, reason why = {}) {
  return {.name = name, .now = prefill_progress::state::gone, .why = std::move(why)};
}

}  // namespace

prefill_controller::prefill_controller(shared_cluster c, std::uint32_t datacenter,
                                       std::uint64_t incarnation)
    : cluster_{c}, incarnation_{incarnation}, permissions_{std::move(c), datacenter} {}

prefill_controller::outbox prefill_controller::on_message(address from, const message& m,
                                                          const payload& body, double now_s) {
  outbox out;
  const auto* all = std::get_if<serving_leases>(&m);
  if (all && from == controller_address) on_leases(*all, now_s, out);
  if (const auto* o = std::get_if<bubble_offer>(&m)) on_offer(from, *o, now_s, out);
  if (const auto* s = std::get_if<stage_signal>(&m)) on_signal(from, *s, now_s);
  if (const auto* r = std::get_if<prefill_request>(&m)) on_request(from, *r, body, now_s, out);
  if (const auto* p = std::get_if<prefill_progress>(&m)) on_progress(from, *p, now_s, out);
  if (const auto* c = std::get_if<cancel_prefill>(&m)) on_cancel(from, *c, now_s, out);
  // Any of these changes may let a prompt begin.
  order_begun(now_s, out);
  return out;
}

const guest_group& prefill_controller::group_of(const promise& p) const {
  return lendings_.at(p.lease).bubbles.offer().groups[p.group];
}

prefill_reply prefill_controller::reply_of(const promise& p, double promised_s) const {
  prefill_reply r{p.name, promised_s, {}, {}};
  for (const auto& g : group_of(p).guests) r.guests.push_back(g.node);
  return r;
}

// ---- lendings

void prefill_controller::reject(address from, const reason& why) {
  ++counts_.rejected;
  // Before the first statement it is this controller that does not know.
  if (permissions_.has_statement()) rejections_.push_back({from, why.text});
}

void prefill_controller::on_leases(const serving_leases& s, double now_s, outbox& out) {
  if (!permissions_.state(s)) return;
  std::vector<lease_id> over;
  for (const auto& [lease, l] : lendings_)
    if (!permissions_.is_lent(l.bubbles.offer())) over.push_back(lease);
  for (const auto lease : over) withdraw(lease, now_s, out);
}

// An offer is a statement, repeated every heartbeat: an older one is ignored, the same one shows
// that the trainer is alive. A newer one with the same guests changes the timetable only, so that
// promises stand; any other difference means other layers or another order of guests, for which
// none of the promises can hold.
void prefill_controller::on_offer(address from, const bubble_offer& o, double now_s, outbox& out) {
  if (auto ok = permissions_.may_offer(from, o); !ok) return reject(from, ok.error());
  auto known = lendings_.find(o.lease);
  if (known != lendings_.end()) {
    const auto& has = known->second.bubbles.offer();
    const std::pair is{o.trainer, o.sequence}, was{has.trainer, has.sequence};
    if (is < was) return;
    if (is == was) return void(known->second.last_seen_s = now_s);
  }
  if (o.groups.empty()) return withdraw(o.lease, now_s, out);
  if (!permissions_.is_valid(o)) return void(++counts_.rejected);
  if (known == lendings_.end() || !known->second.bubbles.has_guests_of(o)) {
    withdraw(o.lease, now_s, out);
    known = lendings_.emplace(o.lease, lending{lent_bubbles{o}}).first;
  }
  known->second.last_seen_s = now_s;
  known->second.bubbles.update(o, now_s);
}

// Signals and offers of one lease are of one trainer; the lent bubbles compare its incarnation.
void prefill_controller::on_signal(address from, const stage_signal& s, double now_s) {
  auto* l = find_in(lendings_, s.stage.lease);
  if (l && !l->bubbles.on_signal(from, s, now_s)) ++counts_.rejected;
}

void prefill_controller::withdraw(lease_id lease, double now_s, outbox& out) {
  const auto at = lendings_.find(lease);
  if (at == lendings_.end()) return;
  std::vector<prefill_name> broken;
  for (const auto& [name, p] : promises_)
    if (p.lease == lease) broken.push_back(name);
  for (const auto& name : broken) {
    ++counts_.lost;
    out.push_back({name.decoder, gone_of(name, {reason::kind::unavailable,
                                                "its training no longer lends bubbles"})});
    forget(name, now_s, true, out);
  }
  lendings_.erase(at);
}

// ---- requests

// A request is repeated until it is answered, and answers may be lost: what was decided of a name
// stands. A promise that still holds is repeated with the time that is left, a decline as it was.
void prefill_controller::on_request(address from, const prefill_request& r, const payload& body,
                                    double now_s, outbox& out) {
  if (!permissions_.is_valid(from, r, body.bytes().size())) return void(++counts_.rejected);
  if (auto ok = permissions_.may_request(from, r); !ok) return reject(from, ok.error());
  if (const auto* p = find_in(promises_, r.name))
    return out.push_back({from, reply_of(*p, std::max(0.0, p->end_s - now_s))});
  if (const auto* declined = find_in(verdicts_, r.name)) {
    if (!declined->text.empty()) out.push_back({from, prefill_reply{r.name, 0, {}, *declined}});
    return;
  }
  const auto why = decide(r, body, now_s, out);
  if (why.empty()) return;
  ++counts_.declined[why];
  const reason declined{reason::kind::insufficient, why};
  out.push_back({from, prefill_reply{r.name, 0, {}, declined}});
  remember(r.name, declined, now_s);
}

/// Promises it, or returns the reason why not. Lendings are asked in the order of their leases; the
/// reason is the last one's.
std::string prefill_controller::decide(const prefill_request& r, const payload& body, double now_s,
                                       outbox& out) {
  auto why = std::string{to_string(planners::decline_reason::no_guest_for_model)};
  for (auto& [lease, l] : lendings_) {
    if (l.bubbles.offer().how.model.name != r.model) continue;
    const double latest_s = r.within_s > 0 ? now_s + r.within_s : never;
    const auto planned = l.bubbles.admit(r.name, r.tokens, latest_s, now_s);
    if (!planned) {
      why = planned.error();
      continue;
    }
    const double end_s = planned->planned_end_s + planned->allowance_s;
    // The decoder gives up at twice the promise and a second more (prefill_attempt).
    promise p{r.name,
              lease,
              planned->group,
              r.tokens,
              r.priority,
              body,
              end_s,
              planned->allowance_s,
              now_s + 2 * (end_s - now_s) + 2};
    TROUPE_INVARIANT(!promises_.contains(r.name), "a prompt is promised once");
    p.held.resize(group_of(p).guests.size());
    p.ended = p.held;
    out.push_back({r.name.decoder, reply_of(p, end_s - now_s)});
    ++counts_.promised;
    auto& kept = promises_.emplace(r.name, std::move(p)).first->second;
    if (!l.bubbles.looks_ahead()) order(l, kept, planned->planned_end_s, now_s, out);
    set_due(kept);
    return {};
  }
  return why;
}

// ---- orders

/// Rule look-ahead: prompts whose first bubble is about to begin.
void prefill_controller::order_begun(double now_s, outbox& out) {
  for (auto& [lease, l] : lendings_)
    for (const auto& [name, end_s] : l.bubbles.take_begun(now_s))
      if (auto& p = promises_.at(name); p.sequence == 0) order(l, p, end_s, now_s, out);
}

/// The first time. Orders of a later incarnation come after those of an earlier one.
void prefill_controller::order(lending& l, promise& p, double end_s, double now_s, outbox& out) {
  TROUPE_INVARIANT(p.sequence == 0, "a prompt is ordered for the first time once");
  p.sequence = (incarnation_ << 32) + ++l.orders;
  l.bubbles.ordered(p.name, end_s);
  send_orders(p, now_s, out);
}

void prefill_controller::send_orders(promise& p, double now_s, outbox& out) {
  TROUPE_INVARIANT(p.sequence > 0, "a prompt is ordered by a number of its own");
  p.repeat_s = never;
  const auto& group = group_of(p);
  for (std::uint32_t i = 0; i < group.guests.size(); ++i) {
    if (p.held[i]) continue;
    p.repeat_s = now_s + order_repeat_s;
    prefill_order o{p.name, p.sequence, p.tokens, i, group, p.latest_s - now_s, p.priority};
    out.push_back({group.guests[i].node, std::move(o), i == 0 ? p.body : payload{}});
  }
  set_due(p);
}

/// Its place among the promises by the time at which it must be repeated or expires.
void prefill_controller::set_due(promise& p) {
  const double due_s = std::min(p.repeat_s, p.latest_s);
  if (due_s == p.due_s) return;
  due_.erase({p.due_s, p.name});
  p.due_s = due_s;
  due_.emplace(due_s, p.name);
}

// ---- reports of guests and decoders

// Ends are passed on to the decoder because blocks do not show how long they were under way: the
// first guest's and the last guest's times split the prefill from its transfer. A guest that is
// paused, or that never had an order, is closed: its device gets no prompts before the next signal.

void prefill_controller::on_progress(address from, const prefill_progress& p, double now_s,
                                     outbox& out) {
  if (const auto c = cancellations_.find(p.name); c != cancellations_.end()) {
    // A guest that never had the order does not know its number: its node counts.
    if (p.now != prefill_progress::state::held)
      std::erase_if(c->second.open, [&](const auto& guest) { return guest.second == from; });
    if (c->second.open.empty()) cancellations_.erase(c);
    return;
  }
  auto* promised = find_in(promises_, p.name);
  if (!promised) return;
  auto& known = *promised;
  const auto& guests = group_of(known).guests;
  const bool sound = std::isfinite(p.ended_ago_s) && p.ended_ago_s >= 0;
  if (p.guest >= guests.size() || guests[p.guest].node != from || !sound)
    return void(++counts_.rejected);
  TROUPE_INVARIANT(known.held.size() == guests.size() && known.ended.size() == guests.size(),
                   "a promise knows of each guest how far it is");
  const bool never_held = !known.held[p.guest];
  known.held[p.guest] = true;
  if (all_set(known.held)) known.repeat_s = never;
  set_due(known);
  if (p.now == prefill_progress::state::held || known.ended[p.guest]) return;
  if (p.now == prefill_progress::state::gone) {
    const bool is_paused = p.why.text.starts_with(paused_by_delay_budget);
    if (is_paused || never_held)
      lendings_.at(known.lease).bubbles.close(guests[p.guest].stage, is_paused, now_s);
    ++counts_.lost;
    out.push_back({p.name.decoder, p});
    return forget(p.name, now_s, true, out);
  }
  known.ended[p.guest] = true;
  if (p.guest == 0 || p.guest + 1 == guests.size()) out.push_back({p.name.decoder, p});
  if (!all_set(known.ended)) return;
  ++counts_.ended;
  lendings_.at(known.lease)
      .bubbles.add_lateness(now_s - p.ended_ago_s - (known.end_s - known.allowance_s));
  forget(p.name, now_s, false, out);
}

void prefill_controller::on_cancel(address from, const cancel_prefill& c, double now_s,
                                   outbox& out) {
  if (from != c.name.decoder || !permissions_.is_local(from)) return void(++counts_.rejected);
  out.push_back({from, gone_of(c.name)});
  if (!promises_.contains(c.name)) return remember(c.name, {}, now_s);
  ++counts_.cancelled;
  forget(c.name, now_s, true, out);
}

/// `cancel`: guests that have an order and have not ended are sent a cancellation.
void prefill_controller::forget(const prefill_name& name, double now_s, bool cancel, outbox& out) {
  const auto at = promises_.find(name);
  TROUPE_INVARIANT(at != promises_.end(), "a promise that is forgotten was made");
  auto& p = at->second;
  lendings_.at(p.lease).bubbles.over(name, now_s);
  if (cancel && p.sequence > 0) {
    auto& c = cancellations_[name];
    for (std::uint32_t i = 0; i < p.ended.size(); ++i)
      if (!p.ended[i]) c.open[i] = group_of(p).guests[i].node;
    c.until_s = p.latest_s;
    send_cancellation(name, c, now_s, out);
  }
  due_.erase({p.due_s, name});
  promises_.erase(at);
  TROUPE_INVARIANT(due_.size() == promises_.size(),
                   "each promise has the time at which it is looked at");
  remember(name, {}, now_s);
}

// Repeated until each guest has answered or the prompt's own limit has ended it there.
void prefill_controller::send_cancellation(const prefill_name& name, cancellation& c, double now_s,
                                           outbox& out) {
  c.repeat_s = now_s + order_repeat_s;
  for (const auto& [guest, node] : c.open) out.push_back({node, cancel_prefill{name}});
}

// Answers are kept for a minute and in a bounded number: a request is repeated for half a second,
// and a cancellation for ten.
void prefill_controller::remember(const prefill_name& name, reason declined, double now_s) {
  if (!verdicts_.insert_or_assign(name, std::move(declined)).second) return;
  verdict_times_.emplace_back(now_s, name);
  while (!verdict_times_.empty() && (verdict_times_.front().first < now_s - remember_verdict_s ||
                                     verdict_times_.size() > max_verdicts)) {
    verdicts_.erase(verdict_times_.front().second);
    verdict_times_.pop_front();
  }
  TROUPE_INVARIANT(verdicts_.size() == verdict_times_.size(),
                   "an answer is kept for as long as its time");
}

// ---- time

double prefill_controller::next_s() const {
  double next = never;
  if (!due_.empty()) next = due_.begin()->first;
  for (const auto& [name, c] : cancellations_) next = std::min(next, c.repeat_s);
  for (const auto& [lease, l] : lendings_)
    next = std::min({next, l.last_seen_s + cluster_->settings.lease_s, l.bubbles.next_s()});
  return next;
}

// Silent trainings first: their promises must neither be repeated nor expire. A promise expires
// when no guest has ended it by twice the promised time and two seconds, when its decoder has given
// up, too.
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
  order_begun(now_s, out);
  return out;
}

}  // namespace troupe::actors
