#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace troupe::gpu {

struct top_token {
  std::uint32_t token = 0;
  double log_probability = 0;
};

/// The n most probable tokens, best first; between equal logits the smaller token first. NaN counts
/// as least probable.
std::vector<top_token> top_tokens(std::span<const float> logits, std::uint32_t n);

}  // namespace troupe::gpu
