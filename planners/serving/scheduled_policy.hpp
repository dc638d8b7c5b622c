#pragma once

#include <memory>

#include "planners/policy/policy.hpp"

namespace troupe::planners {

/// The policy with all that the controller adds to every one: decoders, reserved GPUs, programs
/// with an exact number of GPUs, and trainings that it does not place itself. Precondition: it is
/// not null.
std::shared_ptr<const policy> as_scheduled(std::shared_ptr<const policy> own);

}  // namespace troupe::planners
