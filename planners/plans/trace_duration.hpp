#pragma once

#include <cstdint>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"

namespace troupe::planners {

// The length of traced jobs in iterations (docs/traces.md).

/// Seconds per iteration on `gpus` GPUs of the type that the job's user requested (job.gpu_type;
/// empty: the type with the most memory), with the best split, filling node after node. A trace's
/// duration divided by this is the number of iterations. Infinity: the cluster's GPUs cannot hold
/// the job, or it has too few of that type.
double reference_iteration_s(const cluster& c, const job_spec& job, std::uint32_t gpus);
/// The same whatever the cluster's memory can hold: finite unless it has too few GPUs of that type.
double nominal_iteration_s(const cluster& c, const job_spec& job, std::uint32_t gpus);

}  // namespace troupe::planners
