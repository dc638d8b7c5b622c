#pragma once

#include <memory>
#include <span>

#include "planners/policy/policy.hpp"

namespace troupe::planners {

// Trainings under policies that cannot place them: ATLAS, Algorithm 1 (docs/planners/
// datacenter_selection.md).

/// `inner` with the jobs that it does not place itself (policy::places): before it decides,
/// start_trainings places them. `inner` sees none of them, and their GPUs are not idle. Without
/// such jobs its decisions are `inner`'s own, on the same snapshot. Precondition: `inner` is not
/// null.
std::unique_ptr<policy> with_trainings(std::shared_ptr<const policy> inner);

/// `inner`, which decides first about the trainings whose layers PyTorch computes, and for them the
/// nodes without it (snapshot::without_torch) cannot be used; then about the other jobs, on what is
/// left. Where all nodes have it, or say nothing, its decisions are `inner`'s own. Precondition:
/// `inner` is not null.
std::unique_ptr<policy> with_torch_nodes(std::shared_ptr<const policy> inner);

/// Does a training need PyTorch at its nodes' own interpreters? A simulated one starts no workers.
bool needs_torch(const job_spec& job);

/// `idle` without the GPUs of these nodes.
idle_index idle_with_torch(std::span<const node_without_torch> without, idle_index idle);

}  // namespace troupe::planners
