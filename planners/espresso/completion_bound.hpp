#pragma once

#include "planners/pipeline/stage_placer.hpp"

namespace troupe::planners {

/// What no pipelines undercut that have certain stages and some that are open.
struct completion_bound {
  double seconds = 0;              // of an iteration
  double seconds_times_price = 0;  // seconds of an iteration, times the price of an hour
};

/// `counts`: the stages of the first `decided` types of the division; `missing` more are of the
/// types after those, as far as there are such (precondition: there are enough).
///
/// The time is that of the known stages with the fastest of the others. The cost is at least that
/// time at the least price; and, as an iteration takes W / R and more, with W the work and R the
/// stages' rates, at least W times the least price of any completion for its rate, which is found
/// by Dinkelbach's method: that least ratio is q where no completion has a price below q R.
completion_bound min_completion(const division& d, const iteration_bound& bound,
                                const stage_counts& counts, std::size_t decided,
                                std::uint32_t missing);

}  // namespace troupe::planners
