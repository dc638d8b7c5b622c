#pragma once

#include <vector>

#include "planners/troupe/known_jobs.hpp"

namespace troupe::planners {

// The term "load" of docs/planners/troupe.md, "The decision".

/// The work of the latest arrivals (snapshot::arrivals) as a share of what the cluster, without the
/// GPUs that older jobs hold now, could do in the time in which they came; more than 1: they come
/// faster than it can run them. A job counts the seconds that it and its start take of all GPUs,
/// each pool running its most efficient configuration, but no more than the time since it came.
/// Those that came at the time of the first one are left out: since when they came is not known. 0:
/// nothing has come since. `running`: all of the snapshot's; `known`: of the last decision on this
/// cluster.
double arriving_load(const snapshot& s, configuration_cache& tables, const known_jobs& running,
                     known_arrivals& known);

}  // namespace troupe::planners
