#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

// A request to complete a prompt, and its tokens: the same types in the HTTP server, on the wire,
// in the batch and on the device.

namespace troupe {

/// An addition to the logit of one token.
struct token_bias {
  std::uint32_t token = 0;
  double bias = 0;  // added to its logit

  static constexpr auto fields() { return std::tuple{&token_bias::token, &token_bias::bias}; }
  bool operator==(const token_bias&) const = default;
};

/// The rule by which a token is chosen.
struct sampling {
  double temperature = 0;   // 0: the most probable token
  double top_p = 1;         // only the most probable tokens that together reach this probability
  std::uint32_t top_k = 0;  // only this many of the most probable tokens; 0: all
  std::uint64_t seed = 0;
  double min_p = 0;  // only tokens with this share of the most probable one's probability
  /// Subtracted from a token's logit for each time that it is in the completion.
  double frequency_penalty = 0;
  double presence_penalty = 0;     // subtracted once if it is in the completion
  std::vector<token_bias> bias{};  // at most 1,024

  static constexpr auto fields() {
    using t = sampling;
    return std::tuple{
        &t::temperature,      &t::top_p, &t::top_k, &t::seed, &t::min_p, &t::frequency_penalty,
        &t::presence_penalty, &t::bias};
  }
  bool depends_on_completion() const { return frequency_penalty != 0 || presence_penalty != 0; }
  bool operator==(const sampling&) const = default;
};

/// A prompt to complete. The prompt's tokens travel beside it.
struct completion_request {
  std::uint32_t prompt_tokens = 1;  // at least 1
  /// Tokens of the completion, the known ones included; 0 only with `scores_prompt`.
  std::uint32_t max_tokens = 1;
  std::vector<std::uint32_t> last_tokens;  // each of them ends the completion; at most 256
  sampling how;
  /// Logarithmic probabilities of this many most probable tokens; at most 128.
  std::uint32_t top = 0;
  bool scores_prompt = false;  // the answer begins with the prompt's tokens
  double ttft_s = 0;           // goal for the first token; 0: the server's
  std::int32_t priority = 0;   // larger first, where there is an order

  /// Tokens of the prompt, from the second on, with which the answer begins, with their log
  /// probabilities.
  std::uint32_t scored_tokens() const { return scores_prompt ? prompt_tokens - 1 : 0; }
  /// Tokens of the whole answer, at most.
  std::uint64_t answer_tokens() const { return std::uint64_t{scored_tokens()} + max_tokens; }
  /// Positions of prompt and completion.
  std::uint64_t positions() const { return std::uint64_t{prompt_tokens} + max_tokens; }

  static constexpr auto fields() {
    using t = completion_request;
    return std::tuple{&t::prompt_tokens, &t::max_tokens,    &t::last_tokens, &t::how,
                      &t::top,           &t::scores_prompt, &t::ttft_s,      &t::priority};
  }
  bool operator==(const completion_request&) const = default;
};

/// A token with its logarithmic probability.
struct weighed_token {
  std::uint32_t token = 0;
  double log_probability = 0;  // natural logarithm

  static constexpr auto fields() {
    return std::tuple{&weighed_token::token, &weighed_token::log_probability};
  }
  bool operator==(const weighed_token&) const = default;
};

/// A token of an answer, and the most probable ones in its place, best first.
struct generated_token {
  weighed_token chosen;
  std::vector<weighed_token> top;  // the most probable tokens, if asked for

  static constexpr auto fields() {
    return std::tuple{&generated_token::chosen, &generated_token::top};
  }
  bool operator==(const generated_token&) const = default;
};

}  // namespace troupe
