#pragma once

#include <string>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"
#include "planners/policy/policy.hpp"

namespace troupe::planners {

/// A sentence if the job's limits (max_gpus, required_gpu_type) exclude its best plan under a
/// policy; `plans` are those within the limits. Empty otherwise.
std::string bound_warning(const cluster& c, const job_spec& job, const std::vector<plan>& plans,
                          const policy& by);

}  // namespace troupe::planners
