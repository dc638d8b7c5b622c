#pragma once

#include <functional>
#include <optional>

#include "planners/cluster/snapshot.hpp"
#include "planners/plans/fits.hpp"

namespace troupe::planners {

// Jobs that no pool of like GPUs can hold, under policies that count GPUs by pool (sia, troupe).

/// Whether the job has a plan without stages that needs more memory than what did not suffice.
bool has_mixed_plan(const job_view& j);

/// The first of these plans of the job that idle GPUs can serve, of whatever types have the memory,
/// and the best fit for it, as under frenzy. Passes over allocations that `accepts` rejects.
std::optional<placed_plan> find_mixed_plan(
    const cluster& c, const idle_index& idle, const job_view& j,
    const std::function<bool(const allocation&)>& accepts = [](const auto&) { return true; });

}  // namespace troupe::planners
