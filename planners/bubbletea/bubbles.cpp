#include "planners/bubbletea/bubbles.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::planners {

namespace {

/// Appends an interval that does not begin before the last one.
void append(idle_windows& all, double begin, double end) {
  if (end <= begin) return;
  if (!all.empty() && begin <= all.back().end)
    all.back().end = std::max(all.back().end, end);
  else
    all.push_back({begin, end});
}

}  // namespace

// The steps of an iteration come first, then its tail: the copy of the gradients, the exchange with
// the peers and the update. Hosts exchange gradients while the device is idle, so that the part of
// the tail between copy and update is a bubble; devices that exchange by themselves are busy in it.
idle_windows busy_times(const timetable& t, std::size_t stage) {
  idle_windows busy;
  const auto each = t.steps_of_iteration(stage);
  for (std::size_t i = 0; i < t.iterations; ++i) {
    for (std::size_t k = i * each; k < (i + 1) * each; ++k)
      append(busy, t.steps[stage][k].begin, t.steps[stage][k].end);
    const auto& tail = t.tails[stage][i];
    append(busy, tail.begin, tail.on_devices ? tail.update : tail.exchange);
    append(busy, tail.update, tail.end);
  }
  return busy;
}

// Walks the busy times period by period, keeping the end of the last one. A window is opened there,
// and closed a guard before the next busy time begins: operations are not interrupted, and one that
// takes longer than predicted delays the training only by what exceeds the guard. Two busy times
// less than a guard apart have no window between them.
idle_windows repeated_windows(const idle_windows& busy, double period_s, double origin_s,
                              double from_s, double to_s, double guard_s) {
  idle_windows windows;
  double idle_from = from_s;
  // A period's last times may reach into the next one.
  for (double period = std::floor((from_s - origin_s) / period_s) - 1;; ++period) {
    const double zero_s = origin_s + period * period_s;
    if (zero_s >= to_s && idle_from >= to_s) return windows;
    for (const auto& b : busy) {
      if (b.end <= b.begin || zero_s + b.end <= from_s) continue;
      const double until = std::min(zero_s + b.begin - guard_s, to_s);
      if (until > idle_from) windows.push_back({idle_from, until});
      if (zero_s + b.begin - guard_s >= to_s) return windows;
      idle_from = std::max(idle_from, zero_s + b.end);
    }
    // A device without busy times is idle up to the horizon.
    if (zero_s >= to_s) {
      if (to_s > idle_from) windows.push_back({idle_from, to_s});
      return windows;
    }
  }
}

std::vector<idle_windows> bubbles(const timetable& t, double from_s, double to_s, double guard_s) {
  std::vector<idle_windows> all;
  for (std::size_t stage = 0; stage < t.steps.size(); ++stage)
    all.push_back(repeated_windows(busy_times(t, stage), t.length, 0, from_s, to_s, guard_s));
  return all;
}

// Both lists are in order, so that `p` never goes back: one pass over each, but for promised times
// that reach over several windows, which every one of these windows looks at.
idle_windows without(const idle_windows& windows, const idle_windows& promised) {
  idle_windows left;
  auto p = promised.begin();
  for (const auto& w : windows) {
    double from = w.begin;
    while (p != promised.end() && p->end <= from) ++p;
    for (auto q = p; q != promised.end() && q->begin < w.end; ++q) {
      if (q->begin > from) left.push_back({from, q->begin});
      from = std::max(from, q->end);
    }
    if (w.end > from) left.push_back({from, w.end});
  }
  return left;
}

double total_s(const idle_windows& windows) {
  double sum = 0;
  for (const auto& w : windows) sum += w.length_s();
  return sum;
}

}  // namespace troupe::planners
