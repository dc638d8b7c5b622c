#include "actors/serving/decoder/bubble_prefills.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "messages/base/find_in.hpp"
#include "messages/base/invariant.hpp"
#include "runtime/host/log.hpp"

namespace troupe::actors {

namespace {

constexpr double repeat_cancel_s = 0.25;
/// After these 10 s the controller's own limit of the prefill is over.
constexpr std::uint32_t max_cancels = 40;

}  // namespace

void bubble_prefills::start(messenger m, shared_cluster c, std::string model, lease_id lease,
                            std::function<void(double)> wake_at) {
  messenger_ = std::move(m);
  cluster_ = std::move(c);
  model_ = std::move(model);
  lease_ = lease;
  wake_at_ = std::move(wake_at);
}

std::uint64_t bubble_prefills::begin(prompt p, const decoder_model& m) {
  TROUPE_INVARIANT(p.body.empty() || p.body.bytes().size() == sizeof(std::uint32_t) * p.tokens,
                   "a prompt's body has four bytes for each of its tokens");
  const auto number = ++numbers_;
  const cache_shape shape{m.layers, gpu::pages_for(p.tokens), m.page_bytes, m.hidden_bytes,
                          m.simulated};
  const prefill_name name{messenger_.self(), lease_, number};
  attempts_.emplace(number, entry{std::move(p), !m.simulated, prefill_attempt{name, shape, now()}});
  return number;
}

// An attempt's end comes before its outcome is used: the cancellation leaves before the decoder's
// next round begins. A prompt whose deadline has passed does not ask: the controller could only
// decline it.
std::optional<bubble_prefills::outcome> bubble_prefills::check(std::uint64_t number) {
  auto* known = find_in(attempts_, number);
  if (!known) return {};
  auto& [about, has_data, attempt] = *known;
  attempt.check(now());
  outcome o{about.sequence, {}, {}, attempt.failed()};
  if (attempt.whole()) {
    o.where = attempt.place(now());
    o.last_hidden = attempt.last_hidden();
  } else if (!o.failed) {
    if (!attempt.take_ask(now())) return {};
    const double within_s = about.ttft_s - (now() - about.arrived_s);
    if (within_s > 0) {
      ask(*known, within_s);
      return {};
    }
    o.failed = reason{reason::kind::unavailable, "time-to-first-token limit exceeded"};
  }
  end(number);
  return o;
}

void bubble_prefills::ask(entry& e, double within_s) {
  const prefill_request r{e.attempt.name(), model_, e.about.tokens, within_s, e.about.priority};
  messenger_.send(gateway(), r, payload{e.about.body});
}

double bubble_prefills::next_due_s(std::uint64_t number) const {
  const auto* e = find_in(attempts_, number);
  return e ? e->attempt.next_due_s() : never;
}

void bubble_prefills::end(std::uint64_t number) {
  const auto at = attempts_.find(number);
  if (at == attempts_.end()) return;
  const bool asked = at->second.attempt.asked();
  attempts_.erase(at);
  if (!asked) return;
  cancelled_[number] = {now(), max_cancels};
  wake_at_(repeat_cancellations());
}

double bubble_prefills::repeat_cancellations() {
  double next_s = never;
  for (auto at = cancelled_.begin(); at != cancelled_.end();) {
    auto& c = at->second;
    if (c.due_s <= now()) {
      messenger_.send(gateway(), cancel_prefill{{messenger_.self(), lease_, at->first}});
      c.due_s = now() + repeat_cancel_s;
      --c.left;
    }
    next_s = std::min(next_s, c.due_s);
    at = c.left == 0 ? cancelled_.erase(at) : std::next(at);
  }
  return next_s;
}

bubble_prefills::change bubble_prefills::on_reply(address from, const prefill_reply& r) {
  auto* e = find_in(attempts_, r.name.number);
  if (from != gateway() || r.name.decoder != messenger_.self() || !e) return {};
  e->attempt.on_reply(r, now());
  change c{true, {}, check(r.name.number)};
  if (const auto due_s = next_due_s(r.name.number); due_s != never) wake_at_(due_s);
  return c;
}

// The controller passes on the guests' ends, which only give the times of the prefill, and confirms
// that a prefill is gone: after a cancellation, or because its guests will send no more blocks.
bubble_prefills::change bubble_prefills::on_progress(address from, const prefill_progress& p) {
  if (from != gateway()) return {};
  auto* e = find_in(attempts_, p.name.number);
  if (p.now == prefill_progress::state::ended && e) e->attempt.on_ended(p, now());
  if (p.now != prefill_progress::state::gone) return {};
  cancelled_.erase(p.name.number);
  if (!e) return {};
  e->attempt.on_gone(p.why);
  return {true, {}, check(p.name.number)};
}

// Every block is answered, so that its sender stops repeating it: with what has come of a prefill
// that goes on, and as not needed otherwise. Two cases are silent: a block before its promise is
// only early and is sent again, and a malformed one is not acknowledged.
bubble_prefills::change bubble_prefills::on_block(address from, const prefill_block& b,
                                                  const payload& body) {
  if (b.name.decoder != messenger_.self() || b.what == prefill_block::kind::hidden) return {};
  auto* e = find_in(attempts_, b.name.number);
  if (!e) {
    messenger_.send(from, not_needed(b));
    return {};
  }
  const auto fresh = e->attempt.accept(from, b, body, now());
  if (!fresh) {
    if (fresh.error().code == reason::kind::malformed) log_refused(from, fresh.error());
    return {};
  }
  change c{true};
  if (*fresh && b.what == prefill_block::kind::cache && e->has_data)
    c.part = {e->about.sequence, b.first_layer, b.layers, b.first, b.count, body};
  messenger_.send(from, e->attempt.state(b.guest));
  c.ended = check(b.name.number);
  return c;
}

void bubble_prefills::log_refused(address from, const reason& why) {
  const auto lines = refused_.pass(std::to_string(from), now());
  if (lines > 0)
    runtime::log(runtime::log_level::warn, "decoder", "refused a block of a prefill",
                 {{"why", why.text}, {"from", host_name(*cluster_, from)}, {"blocks", lines}});
}

}  // namespace troupe::actors
