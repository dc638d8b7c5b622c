#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "messages/wire/stage.hpp"

// The cost of prompts to a training, measured in windows with and without them by turns, so that
// other load on the machine meets both alike.

namespace troupe::studies {

/// A time in which prompts were in flight throughout, or not at all; wall clock, as iterations.
struct offer_window {
  bool prompts = false;
  double begin_s = 0, end_s = 0;
};

/// Lengths in seconds of the iterations that lie completely in windows of this kind.
std::vector<double> iteration_lengths(const training_report& r,
                                      const std::vector<offer_window>& windows, bool prompts);

struct paired_windows {
  std::size_t windows = 0;  // of both kinds, with an iteration that lies in them
  // Mean iteration time of a window with prompts over that of the window without which follows it:
  // the median over all pairs, and its 95 % confidence interval (bootstrap).
  double ratio_median = 0, ratio_low = 0, ratio_high = 0;
  // The same interval for windows without prompts, each over the next of them: the variation that
  // prompts do not explain (an A/A test).
  double aa_low = 0, aa_high = 0;
  std::size_t iterations_with = 0, iterations_without = 0;
  double iteration_s_with = 0, iteration_s_without = 0;  // means
  double busy_with = 0, busy_without = 0;  // the training's share of the devices' time
  double guests_with = 0;                  // the prefills'
};

/// None: there are fewer than two pairs.
std::optional<paired_windows> compare_windows(const training_report& r,
                                              const std::vector<offer_window>& windows);

}  // namespace troupe::studies
