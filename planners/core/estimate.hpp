#pragma once

#include "messages/cluster.hpp"
#include "messages/job.hpp"
#include "messages/plan.hpp"

namespace troupe::planners {

/// The expected result of a start.
struct start_estimate {
  double iteration_s = 0;
  double bytes_per_gpu = 0;
  bool out_of_memory = false;  // simulated work: the formula predicts it

  bool operator==(const start_estimate&) const = default;
};

start_estimate estimate_start(const cluster& c, const job_spec& job, const plan& how,
                              const allocation& where);

}  // namespace troupe::planners
