#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "messages/base/fields.hpp"

// A request to complete a prompt, and its tokens: the same types in the HTTP server, on the wire,
// in the batch and on the device.

namespace troupe {

/// An addition to the logit of one token.
struct token_bias {
  std::uint32_t token = 0;
  double bias = 0;  // added to its logit

  TROUPE_FIELDS(token_bias, token, bias);
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
  /// Divides a token's logit if it is positive, and else multiplies it, if the token is in the
  /// prompt or in the completion; more than 0, and 1 or none: no change.
  std::optional<double> repetition_penalty{};
  static constexpr std::size_t required = 8;

  TROUPE_FIELDS(sampling, temperature, top_p, top_k, seed, min_p, frequency_penalty,
                presence_penalty, bias, repetition_penalty);
  bool penalizes_repetition() const { return repetition_penalty.value_or(1) != 1; }
  bool depends_on_completion() const {
    return frequency_penalty != 0 || presence_penalty != 0 || penalizes_repetition();
  }
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
  /// Tokens of the completion before which none of `last_tokens` is chosen; none: 0.
  std::optional<std::uint32_t> min_tokens{};
  static constexpr std::size_t required = 8;

  /// Tokens of the prompt, from the second on, with which the answer begins, with their log
  /// probabilities.
  std::uint32_t scored_tokens() const { return scores_prompt ? prompt_tokens - 1 : 0; }
  /// Tokens of the whole answer, at most.
  std::uint64_t answer_tokens() const { return std::uint64_t{scored_tokens()} + max_tokens; }
  /// Positions of prompt and completion.
  std::uint64_t positions() const { return std::uint64_t{prompt_tokens} + max_tokens; }

  TROUPE_FIELDS(completion_request, prompt_tokens, max_tokens, last_tokens, how, top, scores_prompt,
                ttft_s, priority, min_tokens);
};

/// A token with its logarithmic probability.
struct weighed_token {
  std::uint32_t token = 0;
  double log_probability = 0;  // natural logarithm

  TROUPE_FIELDS(weighed_token, token, log_probability);
};

/// A token of an answer, and the most probable ones in its place, best first.
struct generated_token {
  weighed_token chosen;
  std::vector<weighed_token> top;  // the most probable tokens, if asked for

  TROUPE_FIELDS(generated_token, chosen, top);
};

}  // namespace troupe
