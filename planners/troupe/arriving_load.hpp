#pragma once

#include <vector>

#include "planners/troupe/configurations.hpp"

namespace troupe::planners {

// The term "load" of docs/planners/troupe.md, "The decision".

/// The work of the latest arrivals (snapshot::arrivals) as a share of what the cluster, without the
/// GPUs that older jobs hold now, could do in the time in which they came; more than 1: they come
/// faster than it can run them. A job counts the seconds that it and its start take of all GPUs,
/// each pool running its most efficient configuration, but no more than the time since it came.
/// Those that came at the time of the first one are left out: since when they came is not known. 0:
/// nothing has come since.
double arriving_load(const snapshot& s, const std::vector<gpu_pool>& pools,
                     configuration_cache& tables);

/// The price of a second of a GPU of the fastest type for jobs that have not come yet: the least at
/// which the latest arrivals, each with the configuration that is then cheapest, T * (1 + price *
/// weight), would have left a reserve of the cluster free. With GPUs of several types it keeps the
/// fast ones for jobs that gain much by them, before any job waits. 0: the arrivals leave so much
/// anyway; at most max_arriving_price.
double arriving_price(const snapshot& s, const std::vector<gpu_pool>& pools,
                      configuration_cache& tables);

inline constexpr double max_arriving_price = 4;
/// The share of n GPUs that is left free: arriving_reserve / sqrt(n), as the number of jobs that
/// are there at a time varies with its square root, and at most max_arriving_reserve.
inline constexpr double arriving_reserve = 0.7, max_arriving_reserve = 0.5;

}  // namespace troupe::planners
