#pragma once

#include <algorithm>
#include <optional>

#include "messages/wire/journal.hpp"

namespace troupe::actors {

/// How long no controller ran is believed up to here; beyond it the wall clock is probably wrong.
inline constexpr double max_absence_s = 30 * 86'400.0;

/// The journal's time when a controller starts; from then on it follows the monotonic clock. Ages,
/// deadlines and time limits are differences of such times, so steps of the wall clock must not
/// change them: on a machine that has not been started again since the last epoch the monotonic
/// clock says how much time has passed. Otherwise the wall clock does, within the journal's latest
/// time and max_absence_s after it. `latest_s` 0: the journal is empty. `now.at_s`: the wall clock.
inline double journal_time(const clock_reading& now, const std::optional<clock_reading>& last_epoch,
                           double latest_s) {
  if (latest_s <= 0) return now.at_s;
  if (last_epoch && now.boot != 0 && now.boot == last_epoch->boot &&
      now.monotonic_s >= last_epoch->monotonic_s)
    return std::max(latest_s, last_epoch->at_s + (now.monotonic_s - last_epoch->monotonic_s));
  return std::clamp(now.at_s, latest_s, latest_s + max_absence_s);
}

}  // namespace troupe::actors
