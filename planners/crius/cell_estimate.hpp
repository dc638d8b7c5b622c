#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/cluster/gpu_pools.hpp"
#include "planners/crius/cell.hpp"

// How long an iteration of a Cell takes (Crius, section 5.1; docs/planners/cells.md): each stage's
// ways to divide its GPUs are timed on their own, and assembled with what goes from stage to stage.

namespace troupe::planners {

/// One way to divide a stage's GPUs: `data` replicas of `tensor` GPUs each.
struct stage_plan {
  std::uint32_t data = 1, tensor = 1;
  double work_s = 0;      // a micro-batch: forward, recompute, backward, tensor-parallel sums
  double backward_s = 0;  // of that, the backward
  double sync_s = 0;      // gradients' sums among the replicas, once an iteration
  double update_s = 0;
  double tail_s = 0;         // the part of sync_s that no other stage's backward hides; update_s
  double bytes_per_gpu = 0;  // headroom included
  bool fits = false;         // in the GPU's memory, and the batch and the model can be divided so
  double recompute_s = 0;    // of work_s

  /// What a micro-batch has to pass: recomputing is done while the next stages have it.
  double path_s() const { return work_s - recompute_s; }
  /// What the slowest stage does beyond that.
  double rest_s(std::uint32_t microbatches) const {
    return (microbatches - 1) * work_s + recompute_s;
  }
};

/// All plans of a Cell that are considered.
struct cell_space {
  std::uint32_t microbatches = 1;              // B
  std::vector<std::vector<stage_plan>> plans;  // by stage
  /// [i][a * plans[i].size() + b]: activations from stage i - 1's plan a to stage i's plan b, and
  /// their gradients back. [0] is empty.
  std::vector<std::vector<double>> send_s;

  double send(std::size_t stage, std::size_t from, std::size_t to) const {
    return stage == 0 ? 0 : send_s[stage][from * plans[stage].size() + to];
  }
};

/// A plan for each stage.
struct assembly {
  std::vector<std::uint32_t> chosen;  // index into cell_space::plans[stage]
  double printed_s = 0;               // sum of T_i + (B - 1) * max (T_i - comm_i)
  double estimate_s = 0;              // recomputing only in the slowest stage; the longest tail
  std::uint32_t bottleneck = 0;       // the stage whose T_i - comm_i is largest
};

/// The assembly of plans that fit with the least estimate_s; none: some stage has no plan. Exact,
/// without trying all products: for each limit on the stages' work and tails a dynamic program over
/// stages, O(P^2 * S * p^2) for S stages of p plans and P of both.
std::optional<assembly> best_assembly(const cell_space& space);
/// What an assembly takes.
assembly assembled(const cell_space& space, std::vector<std::uint32_t> chosen);

/// The same space with those plans alone that `keep(stage, plan)` keeps.
cell_space restricted(cell_space space,
                      const std::function<bool(std::size_t, const stage_plan&)>& keep);

/// Every power-of-two division of each stage's GPUs on nodes of this pool. Times are the cost
/// model's or the profiles' (planners/cost).
cell_space space_of(const cluster& c, const gpu_pool& pool, const job_spec& job,
                    const cell_stages& stages);
/// The two plans a stage that are estimated from: data parallel alone and tensor parallel alone.
cell_space sampled(cell_space space);

/// How many assemblies there are: the product of the stages' plans that fit; beyond 2^53 inexact.
double assemblies_of(const cell_space& space);

/// The job as its stages are timed: 1F1B where no schedule is asked for.
job_spec as_scheduled(job_spec job);

}  // namespace troupe::planners
