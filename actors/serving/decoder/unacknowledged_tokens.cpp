#include "actors/serving/decoder/unacknowledged_tokens.hpp"

#include <algorithm>
#include <utility>

#include "actors/protocol/timing.hpp"
#include "messages/base/invariant.hpp"

namespace troupe::actors {

unacknowledged_tokens::unacknowledged_tokens(request_name name, lease_id lease, std::uint32_t known)
    : name_{name}, lease_{lease}, known_{known}, sent_{known}, acknowledged_{known} {}

void unacknowledged_tokens::end(generated::ending how, reason why) {
  TROUPE_INVARIANT(!ended() && how != generated::ending::none, "a request ends once");
  finish_ = how;
  why_ = std::move(why);
}

// The end goes with the last token and the place of the prefill with the first one, so that a front
// that has missed a message gets both again with the tokens that it misses.
generated unacknowledged_tokens::from(std::uint32_t first) const {
  TROUPE_INVARIANT(first >= known_ && first <= tokens(),
                   "tokens are sent from one on that this decoder has generated, or will");
  generated g;
  g.name = name_;
  g.lease = lease_;
  g.first = first;
  const auto begin = tokens_.begin() + (first - known_);
  const auto n = std::min<std::size_t>(max_tokens_per_message, tokens() - first);
  g.tokens.assign(begin, begin + static_cast<std::ptrdiff_t>(n));
  if (first + n == tokens()) {
    g.finish = finish_;
    g.why = why_;
  }
  if (first == known_ && n > 0) g.where = where_;
  return g;
}

generated unacknowledged_tokens::state() const {
  return from(acknowledged_);
}

generated unacknowledged_tokens::final_state() const {
  auto g = from(tokens());
  g.where = {};
  return g;
}

// New tokens are sent at once, each once. Repetitions are a path of their own and begin at the
// first token that is not acknowledged, because the front takes tokens in order only. One timer is
// enough: it restarts whenever the acknowledged position moves.
std::optional<generated> unacknowledged_tokens::take_update(double now_s) {
  if (sent_ == tokens() && (sent_end_ || !ended())) return {};
  if (!waits()) due_s_ = now_s + repeat_s;
  auto g = from(sent_);
  sent_ += static_cast<std::uint32_t>(g.tokens.size());
  sent_end_ = g.finish != generated::ending::none;
  TROUPE_INVARIANT(sent_ <= tokens(), "no more tokens are sent than were generated");
  TROUPE_INVARIANT(acknowledged_ <= sent_, "no more tokens are acknowledged than were sent");
  return g;
}

double unacknowledged_tokens::next_due_s() const {
  return waits() ? due_s_ : never;
}

std::optional<generated> unacknowledged_tokens::take_due(double now_s) {
  if (!waits() || now_s + timer_rounding_s < due_s_) return {};
  due_s_ = now_s + repeat_s;
  return from(acknowledged_);
}

// Acknowledgements may come late and in any order, so the position only grows. Beyond what was sent
// only a faulty front acknowledges.
void unacknowledged_tokens::on_acknowledged(std::uint32_t tokens, double now_s) {
  const auto received = std::clamp(tokens, acknowledged_, sent_);
  if (received > acknowledged_) due_s_ = now_s + repeat_s;
  acknowledged_ = received;
}

}  // namespace troupe::actors
