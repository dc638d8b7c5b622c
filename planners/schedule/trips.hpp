#pragma once

#include <algorithm>
#include <cstdint>

namespace troupe::planners {

/// What a stage of 1F1B does at least, beyond one trip of a micro-batch from it to the last stage
/// and back. At least its first `held` micro-batches, which may be in flight together, wait for
/// such a trip (`trip_s`, the stage's own steps included); at most all `held` do, again and again.
/// For each of the others it takes one `step_s`. Some of the trips may begin at the stage behind it
/// instead (`behind_s`), which holds one micro-batch less: so many that no step is left.
inline double trips_s(std::uint32_t microbatches, std::uint32_t held, double trip_s,
                      double behind_s, double step_s) {
  if (microbatches <= held) return 0;
  const auto others = microbatches - 1;
  const auto with = [&](std::uint32_t trips) {
    return trips * trip_s + (others - trips * held) * step_s;
  };
  double longest = std::max(with(1), with(others / held));
  if (held == 1) return longest;
  const auto mixed = [&](std::uint32_t trips) {
    const auto shorter = trips * held - others;
    return (trips - shorter) * trip_s + shorter * behind_s;
  };
  // Not all of them: that is for the stage behind it to say.
  const auto fewest = (others - 1) / held + 1, max = (others - 1) / (held - 1);
  if (fewest <= max) longest = std::max({longest, mixed(fewest), mixed(max)});
  return longest;
}

/// How much longer the first micro-batch's gradient takes than alone (`gradient_s`), as it leaves a
/// stage for the one in front: the stage's next forward follows at once, and then its activation
/// shares the card. Precondition: that forward's input has arrived.
inline double delay_on_card_s(double gradient_s, double activation_s, double forward_s) {
  return std::clamp(gradient_s - forward_s, 0.0, activation_s);
}

}  // namespace troupe::planners
