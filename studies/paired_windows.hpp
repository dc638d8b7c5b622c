#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "messages/wire/stage.hpp"
#include "studies/prefill_run.hpp"

namespace troupe::cli {

/// What prompts in its bubbles cost a training that was measured in windows with and without them
/// by turns, so that what else happens on the machine meets both alike.
struct paired_windows {
  std::size_t windows = 0;  // of both kinds, with an iteration that lies in them
  // Mean iteration time of a window with prompts over that of the window without which follows it:
  // the median over all pairs, and its 95 % confidence interval (bootstrap).
  double ratio_median = 0, ratio_low = 0, ratio_high = 0;
  // That interval for windows without, each over the one that follows it: what no prompt explains.
  double aa_low = 0, aa_high = 0;
  std::size_t iterations_with = 0, iterations_without = 0;
  double iteration_s_with = 0, iteration_s_without = 0;  // means
  double busy_with = 0, busy_without = 0;  // the training's share of the devices' time
  double guests_with = 0;                  // the prefills'
};

/// Iterations count for the window that they lie in as a whole. None: there are
/// fewer than two pairs.
std::optional<paired_windows> compare_windows(const training_report& r,
                                              const std::vector<studies::offer_window>& windows);

}  // namespace troupe::cli
