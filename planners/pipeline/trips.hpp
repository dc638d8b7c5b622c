#pragma once

#include <algorithm>
#include <cstdint>

namespace troupe::planners {

/// What a stage of 1F1B does at least, beyond one trip of a micro-batch from it to the last stage
/// and back. At least its first `held` micro-batches, which may be in flight together, wait for
/// such a trip (`trip_s`, the stage's own steps included); at most all `held` do, again and again.
/// For each of the others it takes one `step_s`.
inline double trips_s(std::uint32_t microbatches, std::uint32_t held, double trip_s,
                      double step_s) {
  if (microbatches <= held) return 0;
  const auto with = [&](std::uint32_t trips) {
    return trips * trip_s + (microbatches - 1 - trips * held) * step_s;
  };
  return std::max(with(1), with((microbatches - 1) / held));
}

}  // namespace troupe::planners
