#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/completion.hpp"

namespace troupe::gpu {

/// Fails if one is NaN or infinite: there is nothing to choose the token at that position by.
expected<void> check_logits(std::span<const float> logits, std::uint64_t position);

/// Chooses the token at a position: a function of these arguments alone. Between equal logits the
/// smaller token counts as more probable. `logits` must not be empty; NaN counts as least probable.
/// `completion`: its tokens so far, for the penalties; `prompt`: those before it, in any order, for
/// the penalty of repetitions.
weighed_token sample(std::span<const float> logits, const sampling& how, std::uint64_t position,
                     std::span<const std::uint32_t> completion = {},
                     std::span<const std::uint32_t> prompt = {});

/// The rule for the token after `known` tokens of a completion: before `min_tokens` none of the
/// last tokens is chosen.
sampling rule_of(const completion_request& r, std::size_t known);
/// The different tokens of a prompt, if the choice depends on them.
std::vector<std::uint32_t> prompt_for_penalty(const sampling& how,
                                              std::span<const std::uint32_t> prompt);

/// Precondition: the token has a logit.
double log_probability_of(std::span<const float> logits, std::uint32_t token);

/// The n most probable tokens, best first; between equal logits the smaller token first. NaN counts
/// as least probable.
std::vector<weighed_token> top_tokens(std::span<const float> logits, std::uint32_t n);

}  // namespace troupe::gpu
