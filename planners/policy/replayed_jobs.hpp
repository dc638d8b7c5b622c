#pragma once

#include <memory>

#include "messages/domain/job.hpp"
#include "messages/domain/replayed_times.hpp"
#include "planners/policy/policy.hpp"

// Jobs of a trace whose times are given, under any policy (docs/traces.md).

namespace troupe::planners {

/// A policy that may start, stop, delay and place the jobs in `times`, but not resize them, and
/// under which they take the time that is given there. Other jobs are left alone. Neither argument
/// is null.
std::shared_ptr<const policy> with_replayed_times(std::shared_ptr<const policy> inner,
                                                  std::shared_ptr<const replayed_times> times);

}  // namespace troupe::planners
