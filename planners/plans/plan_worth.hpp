#pragma once

#include <string_view>

#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cost/run_cost.hpp"

namespace troupe::planners {

/// The worth of a plan to a job by its objective: larger is better.
inline double plan_worth(const job_spec& job, const plan& p) {
  if (!facts_of(job).has_end) return 1.0 / p.gpus();
  if (job.objective == "fastest") return p.samples_per_s;
  if (job.objective == "cheapest") {
    const double cost = cost_of_run(job, p, 1);
    return cost > 0 ? job.global_batch / cost : 0;
  }
  return p.gpus() > 0 ? p.samples_per_s / p.gpus() : 0;
}

/// The unit of plan_worth().
inline std::string_view worth_name(const job_spec& job) {
  if (!facts_of(job).has_end) return "decoders per GPU";
  if (job.objective == "fastest") return "samples/s";
  if (job.objective == "cheapest") return "samples per unit of cost";
  return "samples/s per GPU";
}

}  // namespace troupe::planners
