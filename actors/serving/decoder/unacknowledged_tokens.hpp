#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "messages/base/invariant.hpp"
#include "messages/base/time.hpp"
#include "messages/wire/generation.hpp"

namespace troupe::actors {

/// The tokens that a decoder has generated for one attempt of a request, and how many of them its
/// front has acknowledged. Pure: times are arguments. Nothing follows the end.
class unacknowledged_tokens {
 public:
  static constexpr double repeat_s = 0.2;
  static constexpr std::size_t max_tokens_per_message = 256;  // tokens

  /// `known`: tokens of the completion that the front has had from the beginning.
  unacknowledged_tokens(request_name name, lease_id lease, std::uint32_t known);

  /// The next token.
  void add(generated_token t) {
    TROUPE_INVARIANT(!ended(), "no token follows a request's end");
    tokens_.push_back(std::move(t));
  }
  /// Goes with the first token.
  void set_where(prefill_place where) { where_ = std::move(where); }
  void end(generated::ending how, reason why = {});
  bool ended() const { return finish_ != generated::ending::none; }

  /// Tokens that were not sent yet; nothing: all were.
  std::optional<generated> take_update(double now_s);
  /// All that the front has not acknowledged, if it is time to repeat it.
  std::optional<generated> take_due(double now_s);
  /// When take_due() has something; `never`: all that was sent is acknowledged.
  double next_due_s() const;
  /// All that is not acknowledged, tokens or none: the answer to a repeated request.
  generated state() const;
  /// Its end, without tokens.
  generated final_state() const;

  /// The front has received the completion's first `tokens` tokens.
  void on_acknowledged(std::uint32_t tokens, double now_s);

  std::uint32_t tokens() const { return known_ + static_cast<std::uint32_t>(tokens_.size()); }

 private:
  generated from(std::uint32_t first) const;
  bool waits() const { return acknowledged_ < sent_ || sent_end_; }

  request_name name_;
  lease_id lease_ = 0;
  std::uint32_t known_ = 0;
  std::vector<generated_token> tokens_;
  std::optional<prefill_place> where_;
  generated::ending finish_ = generated::ending::none;
  reason why_;
  std::uint32_t sent_, acknowledged_;  // positions in the completion
  bool sent_end_ = false;
  double due_s_ = never;
};

}  // namespace troupe::actors
