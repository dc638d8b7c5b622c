#pragma once

#include "planners/cluster/snapshot.hpp"

// The progress of jobs, as policies count on it: in iterations and samples; times in seconds
// (docs/planners/troupe.md, "The decision": left(j)).

namespace troupe::planners {

/// Iterations that the job has done at `s.now_s`, parts of one included, by its last report if
/// there is one, otherwise by what its present attempt was expected to do.
double iterations_by_now(const snapshot& s, const job_view& j);

/// Iterations that the job still has to do at `s.now_s`, at least 1: by its last report if there is
/// one, otherwise by what its present attempt was expected to do.
double iterations_left(const snapshot& s, const job_view& j);

/// The measured time of an iteration over the expected one; 1 where nothing has been reported, or
/// where plans have the measured speed.
double measured_slowdown(const job_view& j);

/// Samples that are left, times the measured slowdown: divided by the rate that a plan is expected
/// to have, the seconds that they take.
double samples_left(const snapshot& s, const job_view& j);

}  // namespace troupe::planners
