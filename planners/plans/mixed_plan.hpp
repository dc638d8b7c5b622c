#pragma once

#include <optional>

#include "planners/cluster/snapshot.hpp"

namespace troupe::planners {

/// A plan on GPUs that need not be of one pool.
struct mixed_plan {
  plan how;
  allocation where;
};

/// Whether the job has a plan without stages that needs more memory than what did not suffice.
bool has_mixed_plan(const job_view& j);

/// The first of these plans of the job that idle GPUs can serve, of whatever types have the memory,
/// and the best fit for it, as under frenzy.
std::optional<mixed_plan> find_mixed_plan(const cluster& c, const idle_index& idle,
                                          const job_view& j);

}  // namespace troupe::planners
