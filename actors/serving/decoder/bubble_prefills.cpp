// The decoder's side of prefill in bubbles.

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "actors/serving/decoder/decoder.hpp"
#include "messages/base/invariant.hpp"
#include "runtime/host/log.hpp"

namespace troupe::actors {

namespace {

constexpr double repeat_cancel_s = 0.25;
/// After that the controller's own limit of the prefill is over.
constexpr std::uint32_t max_cancels = 40;

}  // namespace

cache_shape decoder_behavior::shape_for(const request& r) const {
  return {model_->layers, gpu::pages_for(r.about.what.prompt_tokens), model_->page_bytes,
          model_->hidden_bytes, model_->simulated};
}

/// Its pages are reserved.
void decoder_behavior::begin_prefill(request& r) {
  const auto number = ++prefills_;
  r.prefill.emplace(prefill_name{o_.messenger.self(), o_.lease, number}, shape_for(r), now());
  by_prefill_.emplace(number, key_of(r.about.name));
  check_prefill(r);
  if (r.prefill) wake_at(r.prefill->next_due_s());
}

/// Asks if it is time; takes a whole cache, or goes on without one.
void decoder_behavior::check_prefill(request& r) {
  if (!r.prefill) return;
  auto& p = *r.prefill;
  p.check(now());
  if (p.whole()) {
    r.where = p.place(now());
    queue_->cached(r.sequence, p.last_hidden());
    return end_prefill(r);
  }
  if (p.failed()) return prefill_here(r, *p.failed());
  if (!p.take_ask(now())) return;
  const double goal_s = r.about.what.ttft_s > 0 ? r.about.what.ttft_s : o_.what.ttft_s;
  const double within_s = goal_s - (now() - r.arrived_s);
  if (within_s <= 0)
    return prefill_here(r, {reason::kind::unavailable, "the time to its first token is over"});
  prefill_request ask{p.name(), o_.what.model.name, r.about.what.prompt_tokens, within_s,
                      r.about.what.priority};
  payload body;
  if (!r.tokens.empty()) {
    const auto prompt = std::as_bytes(std::span{r.tokens}.first(r.about.what.prompt_tokens));
    body = payload{std::vector<std::byte>{prompt.begin(), prompt.end()}};
  }
  o_.messenger.send(gateway(), ask, std::move(body));
}

/// No bubbles for it: it computes its prompt in the batch, or ends.
void decoder_behavior::prefill_here(request& r, reason declined) {
  end_prefill(r);
  if (!o_.what.fallback) return finish(r, generated::ending::failed, std::move(declined));
  r.where = {};
  r.where.declined = std::move(declined);
  queue_->compute(r.sequence);
}

/// Nobody needs that prefill any more. The controller hears it until it answers; guests, when they
/// send a block.
void decoder_behavior::end_prefill(request& r) {
  if (!r.prefill) return;
  const auto number = r.prefill->name().number;
  const bool asked = r.prefill->asked();
  r.prefill.reset();
  by_prefill_.erase(number);
  if (!asked) return;
  cancelled_[number] = {now(), max_cancels};
  wake_at(repeat_cancels());
}

double decoder_behavior::repeat_cancels() {
  double next_s = never;
  for (auto at = cancelled_.begin(); at != cancelled_.end();) {
    auto& c = at->second;
    if (c.due_s <= now()) {
      const prefill_name name{o_.messenger.self(), o_.lease, at->first};
      o_.messenger.send(gateway(), cancel_prefill{name});
      c.due_s = now() + repeat_cancel_s;
      --c.left;
    }
    next_s = std::min(next_s, c.due_s);
    at = c.left == 0 ? cancelled_.erase(at) : std::next(at);
  }
  return next_s;
}

void decoder_behavior::on_prefill_reply(address from, const prefill_reply& p) {
  if (over_ || from != gateway() || p.name.decoder != o_.messenger.self()) return;
  const auto at = by_prefill_.find(p.name.number);
  if (at == by_prefill_.end()) return;
  auto& r = requests_.at(at->second);
  r.prefill->on_reply(p, now());
  check_prefill(r);
  if (r.prefill) wake_at(r.prefill->next_due_s());
  go_on();
}

void decoder_behavior::on_prefill_progress(address from, const prefill_progress& p) {
  if (from != gateway()) return;
  if (p.now == prefill_progress::state::ended) {
    const auto known = by_prefill_.find(p.name.number);
    if (over_ || known == by_prefill_.end()) return;
    return requests_.at(known->second).prefill->on_ended(p, now());
  }
  if (p.now != prefill_progress::state::gone) return;
  cancelled_.erase(p.name.number);
  // It is gone although this decoder has not cancelled it: its guests will send no more blocks.
  const auto at = by_prefill_.find(p.name.number);
  if (over_ || at == by_prefill_.end()) return;
  auto& r = requests_.at(at->second);
  r.prefill->on_gone(p.why);
  check_prefill(r);
  go_on();
}

void decoder_behavior::on_block(address from, const prefill_block& b, const payload& body) {
  if (b.name.decoder != o_.messenger.self() || b.what == prefill_block::kind::hidden) return;
  const auto at = by_prefill_.find(b.name.number);
  if (over_ || at == by_prefill_.end()) {
    o_.messenger.send(from, not_needed(b));
    return;
  }
  auto& r = requests_.at(at->second);
  const auto fresh = r.prefill->accept(from, b, body, now());
  if (!fresh) {
    // Before its promise it is only early, and is sent again.
    if (fresh.error().code == reason::kind::malformed) log_refused(from, fresh.error());
    return;
  }
  if (*fresh && b.what == prefill_block::kind::cache && !model_->simulated)
    queue_->put({r.sequence, b.first_layer, b.layers, b.first, b.count, body});
  o_.messenger.send(from, r.prefill->state(b.guest));
  check_prefill(r);
  go_on();
}

void decoder_behavior::log_refused(address from, const reason& why) {
  const auto lines = refused_.pass(std::to_string(from), now());
  if (lines > 0)
    runtime::log(runtime::log_level::warn, "decoder", "refused a block of a prefill",
                 {{"why", why.text}, {"from", host_name(*o_.cluster, from)}, {"blocks", lines}});
}

}  // namespace troupe::actors
