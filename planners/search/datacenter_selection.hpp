#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/cluster/idle_index.hpp"
#include "planners/cluster/planning_budget.hpp"
#include "planners/schedule/schedule.hpp"

// ATLAS, section 4.5, Algorithm 1: the number of DP-cells, and of partitions of the pipeline in
// each datacenter (docs/planners/datacenter_selection.md).

namespace troupe::planners {

/// A datacenter's GPUs that a job could use.
struct datacenter_offer {
  std::uint32_t datacenter = 0;
  std::uint32_t gpus = 0;
  double price_per_hour = 0;  // of one GPU, their mean
};

/// One row of Algorithm 1's table.
struct selection_row {
  std::uint32_t cells = 0;                // D
  std::uint32_t data_parallel = 0;        // D * C pipelines
  std::vector<std::uint32_t> partitions;  // by datacenter, in the order in which they are filled
  std::uint32_t gpus = 0;
  std::uint32_t microbatches = 0, rows = 0;  // of a pipeline; sequences of a micro-batch
  double pipeline_s = 0, allreduce_s = 0;
  double update_s = 0;       // if a profile has it: Algorithm 1 ignores it
  double iteration_s = 0;    // their sum; infinite: not feasible
  double throughput = 0;     // batches of pipelines per second: D * C / iteration_s
  double samples_per_s = 0;  // sequences; for slot jobs micro-batches
  double bytes_per_gpu = 0;  // of the largest stage
  double max_bytes = 0;      // the limit per stage with which it was cut
  double cost_per_hour = 0;

  bool feasible() const { return throughput > 0; }
};

/// The job's batch as pipelines are added.
enum class batch_rule : std::uint8_t {
  each,  // every pipeline has the batch of one pipeline of the job file (the paper)
  whole  // all pipelines together have the job's global batch, which must be divisible
};

struct selection_options {
  std::vector<std::uint32_t> order;  // datacenters; empty: those with most GPUs first
  batch_rule batch = batch_rule::each;
  std::uint32_t stages = 0;  // P; 0: the job's, else the minimum that fits the memory
  std::uint32_t cell = 0;    // pipelines of a DP-cell; 0: C rounded up, fewer if there are few GPUs
  /// Maximum number of tasks that are simulated per table; larger tables use the lower bound of
  /// each shape as its time. 0: always the bound.
  std::uint64_t max_tasks = 600'000;
};

/// Algorithm 1's rows for every possible D.
struct selection {
  std::vector<datacenter_offer> datacenters;  // in the order in which they are filled
  std::uint32_t stages = 0, cell = 0;         // P, and the pipelines of a DP-cell
  double communication_to_compute = 0;        // C, of the slowest hop that any row crosses
  std::vector<selection_row> rows;            // D = 1, 2, ...
  std::optional<std::size_t>
      best;                // highest throughput (of `whole`: samples); fewest GPUs among equals
  double min_flops_s = 0;  // all GPUs are at least as fast
  bool simulated = false;  // else estimated by the bound

  const selection_row* chosen() const { return best ? &rows[*best] : nullptr; }
};

/// The table for a job on idle GPUs. In a cluster with several GPU types the slowest GPU determines
/// a pipeline's speed, so every minimum speed is tried and the best table is returned. Fails if no
/// GPU can hold a stage, or no row is feasible.
expected<selection> select_datacenters(const cluster& c, const idle_index& idle,
                                       const job_spec& job, const selection_options& o = {});

/// The best row of one order of datacenters.
struct order_outcome {
  std::vector<std::uint32_t> order;
  selection_row row;
  double cost_per_batch = 0;  // of one pipeline's batch; of `whole`, per sample
  double wan_rtt_ms = 0;      // sum over its hops
};

/// Compares the orders of datacenters: all orders of up to six that have GPUs, otherwise the
/// beginning of the default order; best first, without duplicates. Estimated.
std::vector<order_outcome> what_if_orders(const cluster& c, const idle_index& idle,
                                          const job_spec& job, const selection_options& o = {});

/// Places a training with its global batch (`whole`) on idle GPUs: Algorithm 1 for every depth,
/// every cell size up to C, and every order of up to four datacenters. By job.objective: the
/// fastest; the one with the fewest GPUs of those nearly as fast (efficient); or the cheapest per
/// sample. `as_wished`: exactly the stages and pipelines that the job requests; else at most as
/// many. Returns one row. Limited by `budget` and max_gpus.
expected<selection> select_placement(const cluster& c, const idle_index& idle, const job_spec& job,
                                     bool as_wished, planning_budget& budget);
inline expected<selection> select_placement(const cluster& c, const idle_index& idle,
                                            const job_spec& job, bool as_wished) {
  planning_budget budget;
  return select_placement(c, idle, job, as_wished, budget);
}

}  // namespace troupe::planners
