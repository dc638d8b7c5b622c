#pragma once

#include <memory>

#include "planners/policy/policy.hpp"

namespace troupe::planners {

/// Guarantees for programs with exact_gpus (exact_gpus.hpp) under every policy, also one that does
/// not know them, such as a plug-in: their plans are exact_plans'; a start on another
/// number of GPUs, or on unequal numbers of its nodes, is dropped; and the first jobs of the queue
/// that the policy leaves waiting are started, as long as they are such programs and idle GPUs
/// remain for them.
std::shared_ptr<const policy> with_exact_gpus(std::shared_ptr<const policy> inner);

}  // namespace troupe::planners
