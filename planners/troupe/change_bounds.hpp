#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "planners/troupe/contender.hpp"
#include "planners/troupe/waiting_prices.hpp"

// Bounds by which a decision leaves a job as it is without a look at each of its options, which are
// some thirty. No option but the present one takes less time than min_time(), has a lower weight
// than the table's least one, or is in a cheaper pool. A cost (job_costs) does not fall with any of
// the three, and neither do its roundings: where these functions say so, a look at all options
// would not have found another one.

namespace troupe::planners {

/// Seconds to a contender's end with an option, from now on.
inline double time_with(const contender& x, std::size_t option, const troupe_options& o) {
  const auto& f = x.table->figures[option];
  const double restart_s = x.restart_s * (x.runs() ? o.stop_cost : 1);
  return x.samples_left_on(f.guess) / f.samples_per_s +
         (x.runs() && x.present == option ? x.start_left_s : restart_s);
}

/// No option that it does not run with takes less.
inline double min_time(const contender& x, const troupe_options& o) {
  return std::min(x.samples_left, x.samples_left / x.guess_slowdown) /
             x.table->fastest_samples_per_s +
         x.restart_s * (x.runs() ? o.stop_cost : 1);
}

/// Does a running job cost less as it is than it could with any other option? False: perhaps not.
/// `prices`: of waiting, by pool.
inline bool is_cheapest_as_it_is(const contender& x, const std::vector<double>& prices,
                                 const job_costs& costs, const troupe_options& o) {
  if (!x.present) return false;
  const auto& f = x.table->figures[*x.present];
  double lowest = std::numeric_limits<double>::infinity();
  for (const auto p : x.table->pools) lowest = std::min(lowest, prices[p]);
  return costs.of_run(time_with(x, *x.present, o), f.weight, prices[f.pool]) <
         costs.of_run(min_time(x, o), x.table->min_weight, lowest);
}

/// Does no change from this option save what rule 3 asks for? False: one may. A job that was given
/// other GPUs than it has may be better off with its own, which cost it no restart.
inline bool is_fast_enough(const contender& x, std::size_t option, const job_costs& costs,
                           const troupe_options& o) {
  if (x.present && x.present != option) return false;
  const double now = costs.of_run(time_with(x, option, o), x.table->figures[option].weight, 0);
  return now - costs.of_run(min_time(x, o), x.table->min_weight, 0) <= o.min_saving * now;
}

}  // namespace troupe::planners
