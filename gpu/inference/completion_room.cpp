#include "gpu/inference/completion_room.hpp"

#include <algorithm>
#include <cmath>

#include "gpu/inference/inference_device.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::gpu {

namespace {

constexpr std::size_t max_last_tokens = 256, max_biases = 1024;
constexpr std::uint32_t max_top = 128;

// A double from the wire may be NaN, which compares false with everything: the conditions are
// written so that it is refused.
expected<void> check_sampling(const sampling& s, std::uint32_t vocabulary) {
  const auto is_finite = [](double v) { return std::isfinite(v); };
  if (!is_finite(s.temperature) || s.temperature < 0 || !(s.top_p >= 0))
    return refuse(reason::kind::invalid, "temperature and top_p must be finite and not negative");
  if (!is_finite(s.min_p) || !is_finite(s.frequency_penalty) || !is_finite(s.presence_penalty) ||
      !std::ranges::all_of(s.bias, is_finite, &token_bias::bias))
    return refuse(reason::kind::invalid, "min_p, penalties and biases of tokens must be finite");
  if (const auto r = s.repetition_penalty.value_or(1); !is_finite(r) || r <= 0)
    return refuse(reason::kind::invalid, "repetition_penalty: found {}, expected more than 0", r);
  if (s.bias.size() > max_biases)
    return refuse(reason::kind::invalid, "found {} biases of tokens, expected at most {}",
                  s.bias.size(), max_biases);
  for (const auto& b : s.bias)
    if (b.token >= vocabulary)
      return refuse(reason::kind::invalid, "the bias of token {} is beyond the vocabulary of {}",
                    b.token, vocabulary);
  return {};
}

// Sums in 64 bits: both numbers come from the wire and have 32.
expected<void> check_size(const completion_request& r, const completion_room& room) {
  if (r.prompt_tokens == 0)
    return refuse(reason::kind::invalid, "a prompt needs at least one token");
  if (r.answer_tokens() == 0) return refuse(reason::kind::invalid, "there is nothing to generate");
  if (r.positions() > room.positions)
    return refuse(reason::kind::invalid,
                  "{} prompt tokens and {} new ones are more than the {} positions of {}",
                  r.prompt_tokens, r.max_tokens, room.positions, room.model);
  if (const auto n = pages_for(static_cast<std::uint32_t>(r.positions())); n > room.pages)
    return refuse(reason::kind::invalid,
                  "{} prompt tokens and {} new ones need {} pages, and the cache has {}",
                  r.prompt_tokens, r.max_tokens, n, room.pages);
  return {};
}

}  // namespace

// The only check of a request before a device, in every process that has one. Sizes come first, so
// that no list is searched for a request that cannot run.
expected<void> check(const completion_request& r, std::span<const std::uint32_t> tokens,
                     const completion_room& room) {
  if (auto ok = check_size(r, room); !ok) return ok;
  if (auto ok = check_sampling(r.how, room.vocabulary); !ok) return ok;
  if (r.top > max_top || r.last_tokens.size() > max_last_tokens)
    return refuse(reason::kind::invalid,
                  "found {} probable tokens and {} last tokens, expected at most {} and {}", r.top,
                  r.last_tokens.size(), max_top, max_last_tokens);
  for (const auto t : tokens)
    if (t >= room.vocabulary)
      return refuse(reason::kind::invalid, "token {} is beyond the vocabulary of {}", t,
                    room.vocabulary);
  return {};
}

// More than are ever allowed: a later attempt would not succeed either.
expected<void> check_sequences(std::size_t present, std::size_t fresh, std::size_t max) {
  if (fresh > max)
    return refuse(reason::kind::invalid,
                  "{} sequences are asked for, and at most {} are allowed at a time", fresh, max);
  if (present + fresh <= max) return {};
  return refuse(reason::kind::insufficient,
                "{} sequences are running or waiting, and {} are allowed", present, max);
}

}  // namespace troupe::gpu
