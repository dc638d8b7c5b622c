#pragma once

#include <optional>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"
#include "planners/cluster/decision.hpp"

namespace troupe::planners {

// The expected result of a decision: time by the cost model, memory by the formula that counts for
// the job (docs/planners/cost_model.md, memory.md). Simulated work then behaves exactly so.

/// GPUs of a placed plan that have too little memory for it.
struct memory_shortage {
  double needed_bytes = 0;
  gpu_index gpu = 0;
};
/// The first such GPUs; none: all have enough. Stages that are planned for GPU types are compared
/// with their own type; other plans need the same of every GPU.
std::optional<memory_shortage> find_memory_shortage(const cluster& c, const job_spec& job,
                                                    const plan& how, const allocation& where);

start_estimate estimate_start(const cluster& c, const job_spec& job, const plan& how,
                              const allocation& where);

}  // namespace troupe::planners
