#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "planners/bubbletea/bubbles.hpp"
#include "planners/bubbletea/prefill_work.hpp"

namespace troupe::planners {

/// From when on a device is free: a time, and the first of its windows that ends after it. A plan
/// is a walk of such cursors through the windows; a cursor never goes back, so that planning a
/// prompt costs as many steps as it has operations and bubbles. Every function takes the device's
/// windows, which must be the same (or the same from at_s on, with window 0) from call to call.
struct device_cursor {
  std::size_t window = 0;
  double at_s = 0;

  /// Not before `from_s`, and in a window; false: there is none left.
  bool move_to(const idle_windows& windows, double from_s) {
    at_s = std::max(at_s, from_s);
    while (window < windows.size() && windows[window].end <= at_s) ++window;
    if (window == windows.size()) return false;
    at_s = std::max(at_s, windows[window].begin);
    return true;
  }

  /// The number of operations of the run that end in the present window. The tolerance lets n equal
  /// operations fill a window of exactly n times their length.
  std::uint32_t fitting(const idle_windows& windows, const operation_run& run) const {
    constexpr double rounding = 1e-9;  // share of an operation
    const double left_s = windows[window].end - at_s;
    if (run.count * run.each_s <= left_s) return run.count;
    return static_cast<std::uint32_t>(
        std::min<double>(run.count, std::floor(left_s / run.each_s + rounding)));
  }

  /// Moves to the first window from `from_s` on in which an operation of the run ends; false: there
  /// is none.
  bool move_to_fitting(const idle_windows& windows, const operation_run& run, double from_s) {
    if (!move_to(windows, from_s)) return false;
    while (fitting(windows, run) == 0) {
      if (++window == windows.size()) return false;
      at_s = windows[window].begin;
    }
    return true;
  }

  /// Moves behind the run, whose input is there at `from_s`; false: the windows end before it.
  bool carry_out(const idle_windows& windows, operation_run run, double from_s) {
    at_s = std::max(at_s, from_s);
    while (run.count > 0) {
      if (!move_to_fitting(windows, run, at_s)) return false;
      const auto n = fitting(windows, run);
      at_s += n * run.each_s;
      run.count -= n;
    }
    return true;
  }
};

}  // namespace troupe::planners
