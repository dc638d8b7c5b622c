#pragma once

#include <cstdint>
#include <span>

#include "messages/base/reason.hpp"
#include "messages/domain/completion.hpp"

namespace troupe::gpu {

/// Fails if one is NaN or infinite: there is nothing to choose the token at that position by.
expected<void> check_logits(std::span<const float> logits, std::uint64_t position);

/// Chooses the token at a position: a function of these arguments alone. Between equal logits the
/// smaller token counts as more probable. `logits` must not be empty; NaN counts as least probable.
/// `completion`: its tokens so far, for the penalties.
weighed_token sample(std::span<const float> logits, const sampling& how, std::uint64_t position,
                     std::span<const std::uint32_t> completion = {});

}  // namespace troupe::gpu
