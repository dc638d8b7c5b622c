#include "planners/plans/trace_duration.hpp"

#include <algorithm>

#include "messages/base/time.hpp"
#include "planners/cost/program_time.hpp"
#include "planners/plans/marp.hpp"
#include "planners/plans/user_request.hpp"

namespace troupe::planners {

namespace {

/// The type of the user's request, or the one with the most memory.
gpu_index type_in_mind(const cluster& c, const job_spec& job) {
  gpu_index best = 0;
  for (gpu_index g = 0; g < c.gpus.size(); ++g) {
    if (c.gpus[g].name == job.request.type) return g;
    if (c.gpus[g].memory_gb > c.gpus[best].memory_gb) best = g;
  }
  return best;
}

}  // namespace

double reference_iteration_s(const cluster& c, const job_spec& job, std::uint32_t gpus) {
  return marp(c, job) ? nominal_iteration_s(c, job, gpus) : never;
}

// Published traces give durations in seconds on the hardware of their cluster. Dividing by the time
// of an iteration on the type that the user had in mind turns them into work, which then takes
// longer or shorter on other GPUs. Without a type the largest one counts, as a user would choose
// it.
double nominal_iteration_s(const cluster& c, const job_spec& job, std::uint32_t gpus) {
  const auto type = type_in_mind(c, job);
  allocation where;
  for (node_index n = 0; n < c.nodes.size() && gpus > 0; ++n) {
    if (c.nodes[n].gpu != type) continue;
    where.push_back({n, std::min(gpus, c.nodes[n].gpus)});
    gpus -= where.back().gpus;
  }
  if (gpus > 0 || where.empty()) return never;
  return estimate_iteration(c, job, split_for(c, job, where), where).iteration_s;
}

}  // namespace troupe::planners
