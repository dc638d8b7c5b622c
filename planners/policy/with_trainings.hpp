#pragma once

#include <memory>

#include "planners/policy/policy.hpp"

namespace troupe::planners {

// Trainings under policies that cannot place them: ATLAS, Algorithm 1 (docs/planners/
// datacenter_selection.md).

/// `inner` with the jobs that it does not place itself (policy::places): before it decides,
/// start_trainings places them. `inner` sees none of them, and their GPUs are not idle. Without
/// such jobs its decisions are `inner`'s own, on the same snapshot. Precondition: `inner` is not
/// null.
std::unique_ptr<policy> with_trainings(std::shared_ptr<const policy> inner);

}  // namespace troupe::planners
