#include "actors/serving/decoder/told_tokens.hpp"

#include <algorithm>
#include <utility>

#include "actors/protocol/timing.hpp"
#include "messages/base/invariant.hpp"

namespace troupe::actors {

told_tokens::told_tokens(request_name name, lease_id lease, std::uint32_t known)
    : name_{name}, lease_{lease}, known_{known}, said_{known}, heard_{known} {}

void told_tokens::end(generated::ending how, reason why) {
  TROUPE_INVARIANT(!ended() && how != generated::ending::none);
  finish_ = how;
  why_ = std::move(why);
}

generated told_tokens::from(std::uint32_t first) const {
  generated g;
  g.name = name_;
  g.lease = lease_;
  g.first = first;
  const auto begin = tokens_.begin() + (first - known_);
  const auto n = std::min<std::size_t>(most_in_a_statement, tokens() - first);
  g.tokens.assign(begin, begin + static_cast<std::ptrdiff_t>(n));
  if (first + n == tokens()) {
    g.finish = finish_;
    g.why = why_;
  }
  if (first == known_ && n > 0) g.where = where_;
  return g;
}

generated told_tokens::state() const {
  return from(heard_);
}

generated told_tokens::last_words() const {
  auto g = from(tokens());
  g.where = {};
  return g;
}

std::optional<generated> told_tokens::take_news(double now_s) {
  if (said_ == tokens() && (said_end_ || !ended())) return {};
  if (!waits()) due_s_ = now_s + repeat_s;
  auto g = from(said_);
  said_ += static_cast<std::uint32_t>(g.tokens.size());
  said_end_ = g.finish != generated::ending::none;
  return g;
}

double told_tokens::next_due_s() const {
  return waits() ? due_s_ : never;
}

std::optional<generated> told_tokens::take_due(double now_s) {
  if (!waits() || now_s + timer_rounding_s < due_s_) return {};
  due_s_ = now_s + repeat_s;
  return from(heard_);
}

void told_tokens::on_heard(std::uint32_t tokens, double now_s) {
  const auto heard = std::clamp(tokens, heard_, said_);
  if (heard > heard_) due_s_ = now_s + repeat_s;
  heard_ = heard;
}

}  // namespace troupe::actors
