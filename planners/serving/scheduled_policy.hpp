#pragma once

#include <memory>

#include "planners/policy/policy.hpp"

namespace troupe::planners {

/// The policy with all that is added to every one that decides, in the controller and in studies:
/// decoders, reserved GPUs, programs with an exact number of GPUs, and trainings that it does not
/// place itself. It is checked (checked_policy): one that breaks its contract fails with a
/// sentence. Precondition: it is not null.
std::shared_ptr<const policy> as_scheduled(std::shared_ptr<const policy> own);

}  // namespace troupe::planners
