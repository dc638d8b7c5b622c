#pragma once

#include <string_view>

#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"
#include "messages/domain/work_kind.hpp"

namespace troupe::planners {

/// The worth of a plan to a job by its objective: larger is better.
inline double plan_worth(const job_spec& job, const plan& p) {
  if (!facts_of(job).has_end) return 1.0 / p.gpus();
  if (job.objective == "fastest") return p.samples_per_s;
  if (job.objective == "cheapest")
    return p.cost_per_hour > 0 ? p.samples_per_s * 3600 / p.cost_per_hour : 0;
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
