#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "messages/domain/completion.hpp"

namespace troupe::gpu {

/// Precondition: the token has a logit.
double log_probability_of(std::span<const float> logits, std::uint32_t token);

/// The n most probable tokens, best first; between equal logits the smaller token first. NaN counts
/// as least probable.
std::vector<weighed_token> top_tokens(std::span<const float> logits, std::uint32_t n);

}  // namespace troupe::gpu
