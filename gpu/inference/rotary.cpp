#include "gpu/inference/rotary.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace troupe::gpu {

namespace {

/// The frequency with scaling. Linear: positions are compressed, which divides all frequencies.
/// Llama 3: wavelengths (2 pi / frequency) beyond original_positions / low_frequency_factor are
/// divided by the factor, those below original_positions / high_frequency_factor stay, and between
/// them both are mixed linearly in original_positions / wavelength.
double scaled(double frequency, const rope_scaling& s) {
  if (s.what == rope_scaling::kind::none) return frequency;
  if (s.what == rope_scaling::kind::linear) return frequency / s.factor;
  const double length = 2 * std::numbers::pi / frequency;
  if (length < s.original_positions / s.high_frequency_factor) return frequency;
  if (length > s.original_positions / s.low_frequency_factor) return frequency / s.factor;
  const double share = (s.original_positions / length - s.low_frequency_factor) /
                       (s.high_frequency_factor - s.low_frequency_factor);
  return (1 - share) * frequency / s.factor + share * frequency;
}

}  // namespace

// Frequency j / 2 is theta^(-j / head_width) for even j: each turns one pair of a head's values.
rotary::rotary(const inference_model& m) {
  for (std::uint32_t j = 0; j + 1 < m.head_width; j += 2) {
    const double exponent = static_cast<double>(j) / m.head_width;
    frequencies_.push_back(
        static_cast<float>(scaled(1 / std::pow(m.rope_theta, exponent), m.rope)));
  }
}

// Position times frequency is rounded to 32 bits before the cosine, as in the reference: a double
// would differ in the last bits at large positions.
// Sines first get their memory, which may be missing: both tables have the same positions then, too.
void rotary::reach(std::uint32_t positions) {
  if (const auto values = positions * half(); values > sines_.capacity())
    sines_.reserve(std::max<std::size_t>(values, 2 * sines_.capacity()));
  for (std::size_t p = cosines_.size() / std::max<std::size_t>(half(), 1); p < positions; ++p)
    for (const float frequency : frequencies_) {
      const double angle = static_cast<float>(p) * frequency;
      cosines_.push_back(static_cast<float>(std::cos(angle)));
      sines_.push_back(static_cast<float>(std::sin(angle)));
    }
}

}  // namespace troupe::gpu
