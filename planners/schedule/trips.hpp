#pragma once

#include <algorithm>
#include <cstdint>

// Chains of events that every simulated 1F1B iteration contains: terms (3) and (5) of
// docs/planners/plan_search.md. There, m is the micro-batches, w those that a stage may hold in
// flight, Y the way from a stage to the last one and back with the steps of each, z a stage's
// forward, recompute and backward. Times are seconds.

namespace troupe::planners {

/// Term (3), trips: a lower bound of what a stage does beyond one trip Y. Of its m - 1 other
/// micro-batches, between one round of w and all of them wait for another trip; each trip takes the
/// place of w steps, and the rest takes z each: k Y + (m - 1 - k w) z, linear in k, so the two ends
/// suffice. Or n trips leave no step over, because c of them begin at the next stage, which holds
/// one micro-batch less: n - c trips of Y and c of Y', c = n w - (m - 1). `held` is w, `trip_s` Y,
/// `behind_s` Y' of the next stage, `step_s` z.
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
  // At least one trip begins here: if all began at the next stage, they would be that stage's term.
  const auto fewest = (others - 1) / held + 1, max = (others - 1) / (held - 1);
  if (fewest <= max) longest = std::max({longest, mixed(fewest), mixed(max)});
  return longest;
}

/// Term (5), first micro-batch: how much longer than alone its gradient takes to leave a stage for
/// the one in front. The stage's next forward follows at once, and then its activation shares the
/// card with the rest of the gradient. `gradient_s`, `activation_s`: each alone on the card.
/// Precondition: the input of that forward has arrived.
inline double delay_on_card_s(double gradient_s, double activation_s, double forward_s) {
  return std::clamp(gradient_s - forward_s, 0.0, activation_s);
}

}  // namespace troupe::planners
