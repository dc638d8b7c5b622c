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

// The plan inside a chosen Cell (Crius, section 5.2, Figure 11; docs/planners/cells.md, "Tuning"),
// and the Cells that scheduling chooses from (section 6.1). Times are seconds per iteration.

namespace troupe::planners {

/// A Cell with its estimate.
struct cell {
  std::uint32_t pool = 0, gpus = 0;
  cell_stages stages;
  cell_space space;                   // every division of every stage's GPUs
  std::optional<assembly> estimated;  // best of the sampled plans; none: no assembly fits
  double assemblies = 0;              // sampled ones that fit
  std::optional<plan> tuned;          // the plan that runs; none: the engine can run none
};

/// The result of tuning, by the estimate's formula over all divisions.
struct tuning {
  assembly favoured;  // the best of the half of each stage's plans that the estimate favoured
  assembly exact;     // the best of all plans of the Cell
  double measured_plans = 0;  // assemblies that the paper would measure
};

/// Tunes as the paper does, and exactly, for comparison. Precondition: the Cell has an estimate.
tuning tune(const cell& of);
/// The best plan over all Cells of `all` with the same GPUs as `of`, whatever their stages, and the
/// number of plans: the search without Cells, by which section 8.2 measures tuning.
struct whole_space {
  double best_s = 0;  // infinite: nothing fits
  double plans = 0;
};
whole_space full_space(const std::vector<cell>& all, const cell& of);
/// Whether tuning considers `tensor` GPUs per replica for a stage of `gpus` GPUs, if the estimate
/// favoured data parallelism (tensor up to the square root of the GPUs) or tensor parallelism (from
/// there on): the halves of Figure 11.
bool kept_by_tuner(std::uint32_t gpus, bool favoured_data, std::uint32_t tensor);

/// Every Cell of the job: pools that it may use, counts and depths. `tuned` is not set.
std::vector<cell> cells_of(const cluster& c, const std::vector<gpu_pool>& pools,
                           const job_spec& job);

/// The plan that runs in a Cell. The engine needs the same data parallelism in all stages (each
/// pipeline has one replica of each), and GPUs of one node for a stage. Returns the best by
/// plan_time's closed form among the plans that the tuner keeps in every stage; if none of them can
/// run, among all.
std::optional<plan> runnable_plan(const cluster& c, const gpu_pool& pool, const job_spec& job,
                                  const cell& of);
/// The same for a program, which has no stages that are known: any division of the GPUs.
std::optional<plan> program_plan(const cluster& c, const gpu_pool& pool, const job_spec& job,
                                 std::uint32_t gpus);

/// Cells that are tuned per pool and count, those with the least estimates. The paper tunes one;
/// estimates know pure data and tensor parallelism only, so the best plan is often in the second
/// Cell.
inline constexpr std::size_t tuned_cells = 2;

/// The Cells that scheduling chooses from: for each pool and count the one with the fastest plan,
/// with that plan, of the tuned Cells that have one which can run. By pool, then count.
std::vector<cell> best_cells(const cluster& c, const std::vector<gpu_pool>& pools,
                             const job_spec& job);

}  // namespace troupe::planners
