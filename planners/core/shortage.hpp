#pragma once

#include <string>

#include "messages/plan.hpp"
#include "planners/core/snapshot.hpp"

namespace troupe::planners {

/// How many GPUs of the plan's types are idle, and how many are of nodes that cannot be used: "2
/// are idle, 2 on r2, which is absent". For people.
std::string idle_text(const snapshot& s, const plan& how);

}  // namespace troupe::planners
