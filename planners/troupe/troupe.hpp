#pragma once

#include <memory>

#include "planners/policy/policy.hpp"
#include "planners/troupe/contender.hpp"

namespace troupe::planners {

/// The default policy (docs/planners/troupe.md) with other constants.
std::unique_ptr<policy> make_troupe(const troupe_options& options);

}  // namespace troupe::planners
