#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/cluster/gpu_pools.hpp"
#include "planners/crius/cell.hpp"

// How long an iteration of a Cell takes (Crius, section 5.1, Figures 9 and 10;
// docs/planners/cells.md): each stage's ways to divide its GPUs are timed on their own, and
// assembled with the transfers between stages. T_i is a stage's time per micro-batch with the
// transfer from the stage before, comm_i that transfer, B the number of micro-batches. All times
// are seconds.

namespace troupe::planners {

/// One way to divide a stage's GPUs: `data` replicas of `tensor` GPUs each.
struct stage_plan {
  std::uint32_t data = 1, tensor = 1;
  double work_s = 0;      // T_i - comm_i: forward, recompute, backward, tensor-parallel sums
  double backward_s = 0;  // the part of work_s that is the backward
  double sync_s = 0;      // sums of gradients among the replicas, once per iteration
  double update_s = 0;
  double tail_s = 0;  // the part of sync_s that no other stage's backward hides, and update_s
  double bytes_per_gpu = 0;  // headroom included
  bool fits = false;         // in the GPU's memory, and the batch and the model can be divided so
  double recompute_s = 0;    // the part of work_s that is the recompute

  /// A stage's part of a micro-batch's way through the pipeline and back. It recomputes while the
  /// stages behind it have the micro-batch.
  double path_s() const { return work_s - recompute_s; }
  /// The time that the slowest stage adds to the way of the first micro-batch.
  double rest_s(std::uint32_t microbatches) const {
    return (microbatches - 1) * work_s + recompute_s;
  }
};

/// All plans of a Cell's stages that are considered, and the transfers between them.
struct cell_space {
  std::uint32_t microbatches = 1;              // B
  std::vector<std::vector<stage_plan>> plans;  // by stage
  /// comm_i: [i][a * plans[i].size() + b] is activations from plan a of stage i - 1 to plan b of
  /// stage i, and their gradients back. [0] is empty.
  std::vector<std::vector<double>> send_s;

  double send(std::size_t stage, std::size_t from, std::size_t to) const {
    return stage == 0 ? 0 : send_s[stage][from * plans[stage].size() + to];
  }
};

/// A plan for each stage ("parallelism assembly", Figure 9).
struct assembly {
  std::vector<std::uint32_t> chosen;  // index into cell_space::plans[stage]
  double printed_s = 0;               // section 5.1: sum of T_i + (B - 1) * max (T_i - comm_i)
  double estimate_s = 0;              // recomputing only in the slowest stage; the longest tail
  std::uint32_t bottleneck = 0;       // the stage with the largest T_i - comm_i
};

/// The assembly of plans that fit with the least estimate_s; none: some stage has no plan. Exact,
/// without trying all products: for each limit on the stages' work and tails a dynamic program over
/// stages, O(P^2 * S * p^2) for S stages of p plans each, P in all.
std::optional<assembly> best_assembly(const cell_space& space);
/// The times of an assembly. `chosen`: an index for each stage.
assembly assembled(const cell_space& space, std::vector<std::uint32_t> chosen);

/// The same space, in which only plans fit for which `keep(stage, plan)` is true.
cell_space restricted(cell_space space,
                      const std::function<bool(std::size_t, const stage_plan&)>& keep);

/// Every division of each stage's GPUs into powers of two, on nodes of this pool. Times are the
/// cost model's or the profiles' (planners/cost), where the paper measures on one GPU per stage.
cell_space space_of(const cluster& c, const gpu_pool& pool, const job_spec& job,
                    const cell_stages& stages);
/// The two plans per stage that the paper samples: data parallel alone and tensor parallel alone.
cell_space sampled(cell_space space);

/// The number of assemblies: the product over stages of the plans that fit; inexact beyond 2^53.
double assemblies_of(const cell_space& space);

}  // namespace troupe::planners
