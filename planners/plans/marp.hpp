#pragma once

#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"
#include "planners/cluster/planning_budget.hpp"

namespace troupe::planners {

/// Memory-Aware Resource Predictor (Frenzy, section IV.A): every (data, tensor) split of the job
/// that some GPU type of the cluster can hold, best first by job.objective. Fails if there is none
/// ("needs at least 41.2 GB per GPU; the largest here has 40 GB"), or none was found within the
/// budget.
expected<std::vector<plan>> marp(const cluster& c, const job_spec& job, planning_budget& budget);
inline expected<std::vector<plan>> marp(const cluster& c, const job_spec& job) {
  planning_budget budget;
  return marp(c, job, budget);
}

}  // namespace troupe::planners
