#pragma once

#include "messages/cluster.hpp"
#include "messages/plan.hpp"
#include "messages/reason.hpp"
#include "planners/core/idle_index.hpp"

namespace troupe::planners {

/// The one feasibility function: may `how` run on `where`, given what is idle? Planners check with
/// it, and the orchestrator commits with it; there is no second opinion. It refuses an allocation
/// that is empty, names a node twice or not at all, sums to another number of GPUs than the plan,
/// takes GPUs that are not idle, GPUs whose memory is not more than the plan's bytes_per_gpu, and
/// stages that cannot be laid out on it (pipeline_layout.hpp) or need more than their GPUs have.
expected<void> fits(const cluster& c, const idle_index& idle, const plan& how,
                    const allocation& where);

}  // namespace troupe::planners
