#pragma once

#include <cstdint>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"

// Estimating plans with many equal pipelines by a few of them (docs/planners/cost_model.md,
// "Stages", fidelity closed).

namespace troupe::planners {

/// The number of first pipelines that stand for all of a plan whose pipelines fill equal nodes:
/// those of one block of full nodes and of a second one, so that each has peers on its own node and
/// on others. 0: the plan has other pipelines, or fewer than twice as many.
std::uint32_t repeated_pipelines(const cluster& c, const job_spec& job, const plan& how,
                                 const allocation& where);

}  // namespace troupe::planners
