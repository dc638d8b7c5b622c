#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "messages/reason.hpp"

namespace troupe::gpu {

struct token_bias {
  std::uint32_t token = 0;
  double bias = 0;  // added to its logit
};

/// How a token is chosen.
struct sampling {
  double temperature = 0;   // 0: the most probable token
  double top_p = 1;         // only the most probable tokens that together reach this probability
  std::uint32_t top_k = 0;  // only so many of the most probable; 0: all
  std::uint64_t seed = 0;
  double min_p = 0;  // only tokens with this share of the most probable one's probability
  // Subtracted from a token's logit for each time that it is in the completion, and if it is.
  double frequency_penalty = 0, presence_penalty = 0;
  std::vector<token_bias> bias{};

  bool depends_on_completion() const { return frequency_penalty != 0 || presence_penalty != 0; }
};

struct sampled_token {
  std::uint32_t token = 0;
  double log_probability = 0;  // of the model: before all of `sampling`
};

/// Fails if one is NaN or infinite: there is nothing to choose the token at that position by.
expected<void> check_logits(std::span<const float> logits, std::uint64_t position);

/// Chooses the token at a position: a function of these arguments alone. Between equal logits the
/// smaller token counts as more probable. `logits` must not be empty; NaN counts as least probable.
/// `completion`: its tokens so far, for the penalties.
sampled_token sample(std::span<const float> logits, const sampling& how, std::uint64_t position,
                     std::span<const std::uint32_t> completion = {});

}  // namespace troupe::gpu
