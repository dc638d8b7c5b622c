#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "messages/base/time.hpp"
#include "messages/wire/generation.hpp"

namespace troupe::actors {

/// What a decoder has generated for one attempt of a request, and what its front has heard of it.
/// Pure: times are arguments. Statements are never taken back, and nothing follows the end.
class told_tokens {
 public:
  static constexpr double repeat_s = 0.2;
  static constexpr std::size_t most_in_a_statement = 256;  // tokens

  /// `known`: tokens of the completion that the front has had from the beginning.
  told_tokens(request_name name, lease_id lease, std::uint32_t known);

  /// The next token.
  void add(generated_token t) { tokens_.push_back(std::move(t)); }
  /// Goes with the first token.
  void set_where(prefill_place where) { where_ = std::move(where); }
  void end(generated::ending how, reason why = {});
  bool ended() const { return finish_ != generated::ending::none; }

  /// What no statement has said yet; nothing: all was said.
  std::optional<generated> take_news(double now_s);
  /// All that the front has not heard for too long; nothing: it is not time.
  std::optional<generated> take_due(double now_s);
  /// When take_due() has something; `never`: the front has heard all that was said.
  double next_due_s() const;
  /// All that the front has not heard, tokens or none: the answer to a repeated request.
  generated state() const;
  /// Its end, without tokens.
  generated last_words() const;

  /// The front has the completion's first `tokens` tokens.
  void on_heard(std::uint32_t tokens, double now_s);

  std::uint32_t tokens() const { return known_ + static_cast<std::uint32_t>(tokens_.size()); }

 private:
  generated from(std::uint32_t first) const;
  bool waits() const { return heard_ < said_ || said_end_; }

  request_name name_;
  lease_id lease_ = 0;
  std::uint32_t known_ = 0;
  std::vector<generated_token> tokens_;
  std::optional<prefill_place> where_;
  generated::ending finish_ = generated::ending::none;
  reason why_;
  std::uint32_t said_, heard_;  // positions in the completion
  bool said_end_ = false;
  double due_s_ = never;
};

}  // namespace troupe::actors
