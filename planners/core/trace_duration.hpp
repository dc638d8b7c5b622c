#pragma once

#include <cstdint>

#include "messages/cluster.hpp"
#include "messages/job.hpp"

namespace troupe::planners {

/// Seconds that one iteration takes on `gpus` GPUs of the type that the job's user has in mind
/// (job.gpu_type; empty: the type with the most memory), best split, nodes filled one after
/// another: what a trace's duration is divided by. Infinity: no GPU of the cluster could ever run
/// the job, or there are not as many GPUs of that type.
double reference_iteration_s(const cluster& c, const job_spec& job, std::uint32_t gpus);

}  // namespace troupe::planners
