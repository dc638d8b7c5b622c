#include "planners/policy/estimate.hpp"

#include <algorithm>

#include "messages/domain/work_kind.hpp"
#include "planners/cost/program_time.hpp"
#include "planners/model/declared_memory.hpp"
#include "planners/policy/placement.hpp"

namespace troupe::planners {

namespace {

bool has_pipelines(const job_spec& job, const plan& how) {
  return !how.stages.empty() || facts_of(job).pipelines;
}

/// A plan with bytes_per_gpu 0 is one whose memory its policy did not predict (fcfs,
/// opportunistic); the formula then counts without headroom: the job runs if it can.
double bytes_of(const job_spec& job, const plan& how) {
  return has_pipelines(job, how) || how.bytes_per_gpu > 0
             ? how.bytes_per_gpu
             : program_bytes(job, how.data_parallel, how.tensor_parallel, 0, how.microbatches);
}

}  // namespace

std::optional<memory_shortage> find_memory_shortage(const cluster& c, const job_spec& job,
                                                    const plan& how, const allocation& where) {
  const auto lacks = [&](double bytes, gpu_index g) { return bytes >= c.gpus[g].memory_bytes(); };
  const bool typed = !how.stages.empty() &&
                     std::ranges::all_of(how.stages, [](const plan_stage& s) { return !!s.gpu; });
  if (typed) {
    for (const auto& s : how.stages)
      if (lacks(s.bytes_per_gpu, *s.gpu)) return memory_shortage{s.bytes_per_gpu, *s.gpu};
    return {};
  }
  const double bytes = bytes_of(job, how);
  for (const auto& share : where)
    if (const auto g = c.nodes[share.node].gpu; lacks(bytes, g)) return memory_shortage{bytes, g};
  return {};
}

start_estimate estimate_start(const cluster& c, const job_spec& job, const plan& how,
                              const allocation& where) {
  start_estimate e;
  e.iteration_s = has_pipelines(job, how) ? job.global_batch / how.samples_per_s
                                          : estimate_iteration(c, job, how, where).iteration_s;
  e.bytes_per_gpu = bytes_of(job, how);
  // Simulated work runs out of memory if the formula predicts it.
  e.out_of_memory = find_memory_shortage(c, job, how, where).has_value();
  return e;
}

}  // namespace troupe::planners
