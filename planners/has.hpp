#pragma once

#include <span>
#include <utility>

#include "messages/cluster.hpp"
#include "messages/plan.hpp"
#include "messages/reason.hpp"
#include "planners/idle_index.hpp"

namespace troupe::planners {

struct has_choice {
  std::size_t plan = 0;   // index into the plans
  allocation where;
};

/// Heterogeneity-Aware Scheduling (Frenzy, Algorithm 1): the first plan that the idle GPUs can serve,
/// and best fit for its GPUs. Plans that need at most `bytes_floor` are passed over.
expected<has_choice> has(const cluster& c, const idle_index& idle, std::span<const plan> plans,
                         double bytes_floor = 0);

}  // namespace troupe::planners
