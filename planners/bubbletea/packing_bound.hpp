#pragma once

#include <vector>

#include "planners/bubbletea/bubbles.hpp"
#include "planners/bubbletea/prefill_work.hpp"

namespace troupe::planners {

/// Seconds of prefill that no packing of these windows exceeds: the yardstick beside which a
/// packing rule's use of the bubbles is reported. Where prompts run in parts, all of the windows.
/// Otherwise, in each window, the subset of the offered times (a device's times of whole prompts,
/// each at most once in a window) that fills it best, to a thousandth of the window; relaxed: every
/// window may use all of them.
double packing_bound_s(packing_rule rule, const idle_windows& windows,
                       const std::vector<double>& offered_s);

}  // namespace troupe::planners
