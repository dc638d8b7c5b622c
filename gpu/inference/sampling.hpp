#pragma once

#include <cstdint>
#include <span>

#include "messages/completion.hpp"

namespace troupe::gpu {

/// Chooses the token at a position: a function of these arguments alone. Between equal logits the
/// smaller token counts as more probable. `logits` must not be empty; NaN counts as least probable.
/// `completion`: its tokens so far, for the penalties.
weighed_token sample(std::span<const float> logits, const sampling& how, std::uint64_t position,
                     std::span<const std::uint32_t> completion = {});

}  // namespace troupe::gpu
