#pragma once

#include "planners/search/stage_placer.hpp"

namespace troupe::planners {

/// What no pipelines undercut that have certain stages and some that are open.
struct completion_bound {
  double seconds = 0;              // of an iteration
  double seconds_times_price = 0;  // seconds of an iteration, times the price of an hour
};

/// `counts`: the stages of the first `decided` types of the division; `missing` more are of the
/// types after those, as far as there are such (precondition: there are enough).
///
/// The time is that of the known stages with the fastest of the others. The cost is the least, over
/// all times, of a time and the least price of a completion that is as fast. `max_s`: longer
/// iterations do not count, so that without a shorter one the cost is infinite; `enough`: a cost
/// from which on it need not be exact.
completion_bound min_completion(const division& d, const iteration_bound& bound,
                                const stage_counts& counts, std::size_t decided,
                                std::uint32_t missing, double max_s, double enough);

}  // namespace troupe::planners
