#include "planners/core/estimate.hpp"

#include <algorithm>

#include "planners/cost/program_time.hpp"
#include "planners/model/declared_memory.hpp"
#include "planners/pipeline/placement.hpp"

namespace troupe::planners {

start_estimate estimate_start(const cluster& c, const job_spec& job, const plan& how,
                              const allocation& where) {
  start_estimate e;
  const bool pipelines = !how.stages.empty() || is_pipeline_job(job);
  e.iteration_s = pipelines ? job.global_batch / how.samples_per_s
                            : estimate_iteration(c, job, how, where).iteration_s;
  e.bytes_per_gpu = pipelines || how.bytes_per_gpu > 0
                        ? how.bytes_per_gpu
                        : program_bytes(job, how.data_parallel, how.tensor_parallel, 0);
  // Simulated work runs out of memory if the formula predicts it.
  e.out_of_memory = std::ranges::any_of(where, [&](const node_share& share) {
    return e.bytes_per_gpu >= c.gpu_of(share.node).memory_bytes();
  });
  return e;
}

}  // namespace troupe::planners
