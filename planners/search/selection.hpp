#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "planners/cost/run_cost.hpp"

// Algorithm 1's table (ATLAS, section 4.5; docs/planners/datacenter_selection.md), and what it is
// asked for.

namespace troupe::planners {

/// A datacenter's GPUs that a job could use.
struct datacenter_offer {
  std::uint32_t datacenter = 0;
  std::uint32_t gpus = 0;
  double price_per_hour = 0;  // mean price of one GPU
};

/// One row of Algorithm 1's table.
struct selection_row {
  std::uint32_t cells = 0;                // D
  std::uint32_t data_parallel = 0;        // D * C pipelines
  std::vector<std::uint32_t> partitions;  // by datacenter, in the order in which they are filled
  std::uint32_t gpus = 0;
  std::uint32_t microbatches = 0, rows = 0;  // per pipeline; sequences per micro-batch
  double pipeline_s = 0, allreduce_s = 0;    // lines 14 and 15
  double update_s = 0;       // from a profile, if there is one: Algorithm 1 has no such term
  double iteration_s = 0;    // their sum (line 17); infinite: not feasible
  double throughput = 0;     // batches of pipelines per second: D * C / iteration_s
  double samples_per_s = 0;  // sequences; for slot jobs micro-batches
  double bytes_per_gpu = 0;  // memory of the largest stage
  double max_bytes = 0;      // the limit per stage that the model was cut with
  gpu_index cut_for = 0;     // the type by whose times it was cut
  double cost_per_hour = 0;  // of its GPUs
  double traffic_per_iteration = 0;  // the price of what it sends between datacenters

  bool feasible() const { return throughput > 0; }
  /// Whether its pipelines cross the WAN.
  bool crosses() const {
    return std::ranges::count_if(partitions, [](std::uint32_t n) { return n > 0; }) > 1;
  }
};

/// The price of its GPUs and its traffic, while it runs.
inline double hourly_cost(const selection_row& r) {
  return r.cost_per_hour + 3600 / r.iteration_s * r.traffic_per_iteration;
}
inline double cost_of_iteration(const selection_row& r) {
  return cost_of_run(1, r.iteration_s, r.cost_per_hour, r.traffic_per_iteration);
}

/// How the batch of the job file is distributed when pipelines are added.
enum class batch_rule : std::uint8_t {
  each,  // every pipeline has the batch of one pipeline of the job file (the paper)
  whole  // all pipelines together have the job's global batch, which must be divisible
};

struct selection_options {
  std::vector<std::uint32_t> order;  // datacenters; empty: those with most GPUs first
  batch_rule batch = batch_rule::each;
  std::uint32_t stages = 0;  // P; 0: the job's, else the minimum that fits the memory
  std::uint32_t cell = 0;    // pipelines of a DP-cell; 0: C rounded up, fewer if there are few GPUs
  /// Maximum number of tasks (steps of stages) that are simulated per table; larger tables use the
  /// lower bound of each shape (schedule.hpp) as its time. 0: always the bound.
  std::uint64_t max_tasks = 600'000;
};

/// Algorithm 1's table: a row for every possible D.
struct selection {
  std::vector<datacenter_offer> datacenters;  // in the order in which they are filled
  std::uint32_t stages = 0, cell = 0;         // P, and the pipelines of a DP-cell
  double communication_to_compute = 0;        // C, of the slowest hop that any row crosses
  std::vector<selection_row> rows;            // D = 1, 2, ...
  std::optional<std::size_t>
      best;                // highest throughput (with `whole`: samples/s); fewest GPUs among equals
  double min_flops_s = 0;  // the slowest GPU that was admitted, FLOP/s
  bool simulated = false;  // false: pipeline_s is the lower bound

  const selection_row* chosen() const { return best ? &rows[*best] : nullptr; }
};

}  // namespace troupe::planners
