#include "gpu/cpu/rotary.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace troupe::gpu::cpu {

namespace {

/// The frequency with scaling. Linear: positions are compressed, which divides all frequencies.
/// Llama 3: wavelengths (2 pi / frequency) beyond original_positions / low_frequency_factor are
/// divided by the factor, those below original_positions / high_frequency_factor stay, and between
/// them both are mixed linearly in original_positions / wavelength.
double scaled(double frequency, const rope_scaling& s) {
  if (s.what == rope_scaling::kind::none || s.what == rope_scaling::kind::yarn) return frequency;
  if (s.what == rope_scaling::kind::linear) return frequency / s.factor;
  const double length = 2 * std::numbers::pi / frequency;
  if (length < s.original_positions / s.high_frequency_factor) return frequency;
  if (length > s.original_positions / s.low_frequency_factor) return frequency / s.factor;
  const double share = (s.original_positions / length - s.low_frequency_factor) /
                       (s.high_frequency_factor - s.low_frequency_factor);
  return (1 - share) * frequency / s.factor + share * frequency;
}

/// YaRN: the pair of values, as a number that need not be whole, with that number of turns in the
/// original positions.
double pair_of(double turns, const inference_model& m) {
  return m.head_width * std::log(m.rope.original_positions / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(m.rope_theta));
}

/// YaRN: the share of each pair's frequency that is divided by the factor, from 0 to 1 between two
/// bounds.
struct yarn_ramp {
  explicit yarn_ramp(const inference_model& m)
      : low{pair_of(m.rope.fast_turns, m)}, high{pair_of(m.rope.slow_turns, m)} {
    if (m.rope.whole_bounds) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0);
    high = std::min(high, m.head_width - 1.0);
    if (low == high) high += 0.001;
  }
  double share(std::uint32_t pair) const { return std::clamp((pair - low) / (high - low), 0., 1.); }

  double low, high;
};

}  // namespace

// Frequency j / 2 is theta^(-j / head_width) for even j: each turns one pair of a head's values.
rotary::rotary(const inference_model& m) {
  for (std::uint32_t j = 0; j + 1 < m.head_width; j += 2) {
    const double exponent = static_cast<double>(j) / m.head_width;
    frequencies_.push_back(
        static_cast<float>(scaled(1 / std::pow(m.rope_theta, exponent), m.rope)));
  }
  if (m.rope.what != rope_scaling::kind::yarn) return;
  scale_ = m.rope.attention_factor;
  const yarn_ramp ramp{m};
  for (std::uint32_t j = 0; j < frequencies_.size(); ++j) {
    const double share = ramp.share(j), plain = frequencies_[j];
    frequencies_[j] = static_cast<float>(share * plain / m.rope.factor + (1 - share) * plain);
  }
}

// Position times frequency is rounded to 32 bits before the cosine, as in the reference: a double
// would differ in the last bits at large positions.
// Both tables first get their memory, which may be missing: they have the same positions then, too.
void rotary::reach(std::uint32_t positions) {
  for (auto* table : {&cosines_, &sines_})
    if (const std::size_t values = positions * half(); values > table->capacity())
      table->reserve(std::max(values, 2 * table->capacity()));
  for (std::size_t p = cosines_.size() / std::max<std::size_t>(half(), 1); p < positions; ++p)
    for (const float frequency : frequencies_) {
      const double angle = static_cast<float>(p) * frequency;
      cosines_.push_back(static_cast<float>(scale_ * std::cos(angle)));
      sines_.push_back(static_cast<float>(scale_ * std::sin(angle)));
    }
}

}  // namespace troupe::gpu::cpu
