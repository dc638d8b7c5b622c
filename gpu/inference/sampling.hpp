#pragma once

#include <cstdint>
#include <span>

namespace troupe::gpu {

/// How a token is chosen.
struct sampling {
  double temperature = 0;   // 0: the most probable token
  double top_p = 1;         // only the most probable tokens that together reach this probability
  std::uint32_t top_k = 0;  // only so many of the most probable; 0: all
  std::uint64_t seed = 0;
};

struct sampled_token {
  std::uint32_t token = 0;
  double log_probability = 0;  // of the model: before temperature, top_k and top_p
};

/// Chooses the token at a position: a function of these arguments alone. Between equal logits the
/// smaller token counts as more probable. `logits` must not be empty; NaN counts as least probable.
sampled_token sample(std::span<const float> logits, const sampling& how, std::uint64_t position);

}  // namespace troupe::gpu
