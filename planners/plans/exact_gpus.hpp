#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"
#include "planners/cluster/idle_index.hpp"
#include "planners/cluster/snapshot.hpp"
#include "planners/plans/fits.hpp"

// Programs that run on exactly the number of GPUs that their users request
// (work_facts::exact_gpus), the same number on each node: their plans and places under every policy
// (docs/planners/baselines.md).

namespace troupe::planners {

/// Its plans, best by its objective first: one for each GPU type that has this number
/// with enough memory. Of several types only where no single one has. Where no split of that number
/// suits the model's batch and heads, the number and the memory alone count. Fails, with what would
/// be needed, if no GPUs of this cluster can run it within its limits (bounds.hpp).
expected<std::vector<plan>> exact_plans(const cluster& c, const job_spec& job);

/// Idle GPUs of the plan's types for it, as many of each node: of one datacenter if possible, then
/// on the fewest nodes, then on those with the fewest idle GPUs. A program that permits unequal
/// numbers gets them where equal ones are not idle. Empty: there are none.
allocation place_exact(const cluster& c, const idle_index& idle, const job_spec& job,
                       const plan& how);

/// The first of the job's plans that idle GPUs can serve now.
std::optional<placed_plan> place_exact(const cluster& c, const idle_index& idle, const job_view& j);

/// Whether a node can be used now.
bool can_use(const snapshot& s, node_index n);
/// All GPUs of the nodes that can be used, as if they were idle: what jobs may get as soon as
/// others end. The rest of the cluster needs its nodes to come back first.
idle_index usable(const snapshot& s);

/// Whether it waits for nodes that are absent or drained: the others could not serve it, were all
/// of their GPUs idle.
bool waits_for_nodes(const snapshot& s, const job_view& j);

/// Why none of its plans can ever be placed; nothing: one can.
std::optional<reason> why_never(const job_view& j);

}  // namespace troupe::planners
