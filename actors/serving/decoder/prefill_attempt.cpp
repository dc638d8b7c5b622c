#include "actors/serving/decoder/prefill_attempt.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "actors/protocol/timing.hpp"
#include "messages/base/time.hpp"

namespace troupe::actors {

namespace {

/// Guests of a group; each has a layer at least.
constexpr std::size_t max_promised_guests = 4096;

}  // namespace

prefill_attempt::prefill_attempt(prefill_name name, const cache_shape& shape, double now_s)
    : name_{name},
      shape_{shape},
      began_s_{now_s},
      ask_s_{now_s},
      late_at_s_{now_s + reply_timeout_s} {}

bool prefill_attempt::take_ask(double now_s) {
  if (blocks_ || failed_ || now_s + timer_rounding_s < ask_s_) return false;
  ask_s_ = now_s + ask_again_s;
  asked_ = true;
  return true;
}

// A promise fixes the guests, whose number sizes the assembly, and the time after which it counts
// as broken. Although it comes from the datacenter's own gateway, both are checked: a time that is
// not finite would keep the pages for ever.
void prefill_attempt::on_reply(const prefill_reply& r, double now_s) {
  if (blocks_ || failed_) return;
  if (!r.declined.text.empty()) {
    failed_ = r.declined;
    return;
  }
  if (r.guests.empty() || r.guests.size() > max_promised_guests || !std::isfinite(r.promised_s)) {
    failed_ = {reason::kind::malformed, "the promise names no guests, or no time"};
    return;
  }
  promised_s_ = std::max(r.promised_s, 0.0);
  late_at_s_ = now_s + late_factor * promised_s_ + late_s;
  blocks_.emplace(name_, shape_, r.guests);
}

void prefill_attempt::on_gone(const reason& why) {
  if (failed_ || whole()) return;
  failed_ = why;
  if (failed_->text.empty()) *failed_ = {reason::kind::unavailable, "its guests have given it up"};
}

// Only the first guest's begin and the last guest's end matter: the prefill is a pipeline.
void prefill_attempt::on_ended(const prefill_progress& p, double now_s) {
  if (!blocks_) return;
  if (p.guest == 0) begun_s_ = now_s - std::max(p.begun_ago_s, 0.0);
  if (p.guest + 1 == blocks_->guests()) ended_s_ = now_s - std::max(p.ended_ago_s, 0.0);
}

expected<bool> prefill_attempt::accept(address from, const prefill_block& b, const payload& body,
                                       double now_s) {
  if (!blocks_ || failed_) return refuse(reason::kind::stale, "a block before its promise");
  const auto fresh = blocks_->accept(from, b, body, now_s);
  if (blocks_->broken()) failed_ = blocks_->broken();
  return fresh;
}

void prefill_attempt::check(double now_s) {
  if (failed_ || whole() || now_s + timer_rounding_s < late_at_s_) return;
  failed_ = blocks_ ? reason{reason::kind::unavailable,
                             fmt::format("the KV cache was incomplete after {:.2f} s, although the "
                                         "prefill was promised within {:.2f} s",
                                         late_at_s_ - began_s_, promised_s_)}
                    : reason{reason::kind::unavailable, "the prefill controller does not answer"};
}

double prefill_attempt::next_due_s() const {
  if (failed_ || whole()) return never;
  return blocks_ ? late_at_s_ : std::min(ask_s_, late_at_s_);
}

// Splits the time from the request to the whole cache into queue, prefill and transfer. The ends
// that the controller has passed on are preferred to those in blocks, which were under way for
// longer. Both come from other hosts, so they are clamped to this attempt's own time.
prefill_place prefill_attempt::place(double now_s) const {
  prefill_place p;
  p.bubbles = true;
  p.promised_s = promised_s_;
  blocks_->write(p);
  const double ended_s = std::clamp(ended_s_.value_or(blocks_->ended_s()), began_s_, now_s);
  p.queue_s = std::clamp(begun_s_.value_or(blocks_->begun_s()), began_s_, ended_s) - began_s_;
  p.prefill_s = ended_s - began_s_;
  p.transfer_s = now_s - ended_s;
  return p;
}

}  // namespace troupe::actors
