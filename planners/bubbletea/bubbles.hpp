#pragma once

#include <vector>

#include "planners/schedule/evaluate_schedule.hpp"

// The idle time of the devices that train, by the timetable of their training: the bubbles of its
// pipelines (BubbleTea, section 5). All times are in seconds from the training's start; in studies
// with `slots` a slot counts as a second.

namespace troupe::planners {

/// A half-open interval, seconds.
struct idle_window {
  double begin = 0, end = 0;

  double length_s() const { return end - begin; }
  bool operator==(const idle_window&) const = default;
};
/// In order and disjoint.
using idle_windows = std::vector<idle_window>;

/// The times at which a stage's device works for its training: steps, and the parts of tails that
/// need it. During an all-reduce between hosts it is idle.
idle_windows busy_times(const timetable& t, std::size_t stage);

/// Windows of a device that is busy at these times of every `period_s`, counted from `origin_s`, in
/// [from_s, to_s). A window ends `guard_s` before the next of these times begins; shorter ones are
/// left out. The times are ascending and may touch; a period's end before the next one's begin.
/// Precondition: period_s > 0.
idle_windows repeated_windows(const idle_windows& busy, double period_s, double origin_s,
                              double from_s, double to_s, double guard_s);

/// The windows of every stage's device in [from_s, to_s), when the timetable repeats each
/// `t.length` from time 0. A window ends `guard_s` before the next step begins; shorter ones are
/// left out. Precondition: t.length > 0.
std::vector<idle_windows> bubbles(const timetable& t, double from_s, double to_s, double guard_s);

/// The parts of windows outside of the times that are promised (or used), which are in order and
/// disjoint.
idle_windows without(const idle_windows& windows, const idle_windows& promised);

/// The sum of the windows' lengths, seconds.
double total_s(const idle_windows& windows);

}  // namespace troupe::planners
