#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"
#include "planners/cluster/gpu_pools.hpp"
#include "planners/crius/cell.hpp"
#include "planners/crius/cell_estimate.hpp"

// The plan inside a chosen Cell (Crius, section 5.2; docs/planners/cells.md).

namespace troupe::planners {

/// A Cell with its estimate.
struct cell {
  std::uint32_t pool = 0, gpus = 0;
  cell_stages stages;
  cell_space space;                   // every division of every stage's GPUs
  std::optional<assembly> estimated;  // of those that are sampled; none: no assembly fits
  double assemblies = 0;              // sampled ones that fit
  std::optional<plan> tuned;          // what runs; none: the engine can run none of its plans
};

/// What tuning found, by the estimate's own formula over all divisions.
struct tuning {
  assembly favoured;  // the best of the half of each stage's plans that the estimate favoured
  assembly exact;     // the best of all
  double measured_plans = 0, full_plans = 0;
};

/// Precondition: the Cell has an estimate.
tuning tune(const cell& of);
/// All plans of the Cells that have the same GPUs as `of` and any number of stages: what would have
/// to be searched without Cells.
struct whole_space {
  double best_s = 0;  // infinite: nothing fits
  double plans = 0;
};
whole_space full_space(const std::vector<cell>& all, const cell& of);
/// Whether a stage of `gpus` GPUs keeps a plan when the estimate favoured data (or else tensor)
/// parallelism: up to, or from, the square root of the GPUs.
bool kept_by_tuner(std::uint32_t gpus, bool favoured_data, std::uint32_t tensor);

/// Every Cell of the job: pools that it may use, counts and depths. `tuned` is not set.
std::vector<cell> cells_of(const cluster& c, const std::vector<gpu_pool>& pools,
                           const job_spec& job);

/// The plan that runs in a Cell: data parallelism is the same for all stages (each pipeline has one
/// replica of each), and GPUs that share a stage are of one node. The best by plan_time's closed
/// form of those that the tuner keeps in every stage; if none of them can run, of all.
std::optional<plan> runnable_plan(const cluster& c, const gpu_pool& pool, const job_spec& job,
                                  const cell& of);
/// The same for a program that makes its own stages: one stage, any division of the GPUs.
std::optional<plan> program_plan(const cluster& c, const gpu_pool& pool, const job_spec& job,
                                 std::uint32_t gpus);

/// Of each pool and count so many Cells are tuned, those with the least estimates. Estimates know
/// pure data and tensor parallelism only, so the best plan is often in the second Cell.
inline constexpr std::size_t tuned_cells = 2;

/// The Cells that scheduling chooses from: for each pool and count the one with the fastest plan,
/// with that plan, of the tuned Cells that have one which can run. By pool, then count.
std::vector<cell> best_cells(const cluster& c, const std::vector<gpu_pool>& pools,
                             const job_spec& job);

}  // namespace troupe::planners
