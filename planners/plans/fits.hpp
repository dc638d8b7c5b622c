#pragma once

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/plan.hpp"
#include "planners/cluster/idle_index.hpp"

namespace troupe::planners {

/// A plan and the GPUs that it is to run on.
struct placed_plan {
  plan how;
  allocation where;
};

/// The feasibility function: may `how` run on `where`, given the idle GPUs? Planners search with
/// it, and the orchestrator commits with it. It rejects an allocation that is empty, lists a node
/// twice or an unknown one, has another number of GPUs than the plan, uses GPUs that are not idle
/// or whose memory is not more than the plan's bytes_per_gpu, and stages that cannot be laid out on
/// it (cost/layout.hpp) or need more memory than their GPUs have (Frenzy, Algorithm 1, as MARP and
/// HAS compare: more memory than needed, in bytes).
expected<void> fits(const cluster& c, const idle_index& idle, const plan& how,
                    const allocation& where);

}  // namespace troupe::planners
