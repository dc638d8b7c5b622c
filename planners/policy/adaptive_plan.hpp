#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"
#include "planners/cluster/gpu_pools.hpp"
#include "planners/cost/batch_split.hpp"
#include "planners/policy/policy.hpp"

// The speed of a job on a number of GPUs that are alike (docs/planners/baselines.md): with any
// parallelism, and with data parallelism alone, which is all that the baselines of Crius'
// evaluation know.

namespace troupe::planners {

/// How GPUs that are alike are divided: d pipelines of p stages of t GPUs each.
struct even_shape {
  std::uint32_t data = 1, stages = 1, tensor = 1;

  std::uint32_t gpus() const { return data * stages * tensor; }
};

/// The job as stages of simulated work are timed: with the schedule megatron (1F1B) unless it is a
/// training.
job_spec as_scheduled(job_spec job);
/// The plan, whose stages are cut and for GPUs of one type, with its memory and speed on these
/// GPUs. None: it does not fit their memory, or cannot run there.
std::optional<plan> with_figures(const cluster& c, const job_spec& job, plan how,
                                 const batch_split& batch, const allocation& where);

/// A plan of that shape on these GPUs of the pool, the model cut as evenly as it can be. Of powers
/// of two. None: it does not fit the memory, the batch or the model cannot be divided so, or GPUs
/// that share a stage would be of two nodes.
std::optional<plan> even_plan(const cluster& c, const gpu_pool& pool, const job_spec& job,
                              const even_shape& shape, const allocation& where);
/// On whole nodes, and what is left over.
std::optional<plan> even_plan(const cluster& c, const gpu_pool& pool, const job_spec& job,
                              const even_shape& shape);
/// The fastest of all shapes on exactly these GPUs; the second form on `gpus` GPUs in whole nodes.
std::optional<plan> adaptive_plan(const cluster& c, const gpu_pool& pool, const job_spec& job,
                                  const allocation& where);
std::optional<plan> adaptive_plan(const cluster& c, const gpu_pool& pool, const job_spec& job,
                                  std::uint32_t gpus);
/// The fewest GPUs that hold the job, replicated to `gpus`: the expectation of a system that scales
/// by data parallelism alone. None: they are fewer than the job needs, or not a multiple.
std::optional<plan> data_parallel_plan(const cluster& c, const gpu_pool& pool, const job_spec& job,
                                       std::uint32_t gpus);

/// A policy whose jobs run with the best parallelism on the GPUs that it grants, whatever plan it
/// had in mind: simulated work alone, on GPUs of one pool. Plans of alike jobs are
/// remembered; nothing that it answers depends on what it was asked before.
std::shared_ptr<const policy> with_adaptive_parallelism(std::shared_ptr<const policy> inner);

}  // namespace troupe::planners
