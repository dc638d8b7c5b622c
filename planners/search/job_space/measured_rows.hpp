#pragma once

#include <cstdint>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"

namespace troupe::planners {

/// Samples of a micro-batch that some profile of the model was measured with, ascending.
std::vector<std::uint32_t> measured_rows(const cluster& c, const job_spec& job,
                                         const std::vector<gpu_index>& gpus);

}  // namespace troupe::planners
