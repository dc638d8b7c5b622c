#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "messages/cluster.hpp"
#include "messages/job.hpp"
#include "messages/reason.hpp"
#include "planners/core/idle_index.hpp"
#include "planners/core/planning_budget.hpp"
#include "planners/pipeline/schedule.hpp"

// ATLAS, section 4.5, Algorithm 1: how many DP-cells, and how many partitions of the pipeline in
// which datacenter (docs/planners/datacenter_selection.md).

namespace troupe::planners {

/// A datacenter's GPUs that a job could have.
struct datacenter_offer {
  std::uint32_t datacenter = 0;
  std::uint32_t gpus = 0;
  double price_per_hour = 0;  // of one GPU, their mean
};

/// One line of Algorithm 1's table.
struct selection_row {
  std::uint32_t cells = 0;                // D
  std::uint32_t data_parallel = 0;        // D * C pipelines
  std::vector<std::uint32_t> partitions;  // by datacenter, in the order in which they are filled
  std::uint32_t gpus = 0;
  std::uint32_t microbatches = 0, rows = 0;  // of a pipeline; sequences of a micro-batch
  double pipeline_s = 0, allreduce_s = 0;
  double update_s = 0;       // where a profile knows it: Algorithm 1 leaves it out
  double iteration_s = 0;    // their sum; infinite: not feasible
  double throughput = 0;     // pipelines' batches a second: D * C / iteration_s
  double samples_per_s = 0;  // sequences; for a study in slots micro-batches
  double bytes_per_gpu = 0;  // of the largest stage
  double max_bytes = 0;      // that a stage may need for it to be cut so
  double cost_per_hour = 0;

  bool feasible() const { return throughput > 0; }
};

/// What happens to a job's batch as pipelines are added.
enum class batch_rule : std::uint8_t {
  each,  // every pipeline takes what one pipeline of the job's file takes (the paper)
  whole  // all pipelines share the job's global batch, which must divide
};

struct selection_options {
  std::vector<std::uint32_t> order;  // datacenters; empty: those with most GPUs first
  batch_rule batch = batch_rule::each;
  std::uint32_t stages = 0;  // P; 0: the job's, else the fewest that the GPUs' memory holds
  std::uint32_t cell = 0;    // pipelines of a DP-cell; 0: C rounded up, fewer where GPUs are few
  /// Most tasks that are simulated for a table; larger tables take the lower bound of each shape
  /// for its length. 0: always the bound.
  std::uint64_t max_tasks = 600'000;
};

/// Algorithm 1 for every D that the GPUs suffice for.
struct selection {
  std::vector<datacenter_offer> datacenters;  // in the order in which they are filled
  std::uint32_t stages = 0, cell = 0;         // P, and the pipelines of a DP-cell
  double communication_to_compute = 0;        // C, of the slowest hop that any row crosses
  std::vector<selection_row> rows;            // D = 1, 2, ...
  std::optional<std::size_t>
      best;                // most throughput (of `whole`: samples); the fewest GPUs if equal
  double min_flops_s = 0;  // all GPUs are at least as fast
  bool simulated = false;  // or estimated by the bound

  const selection_row* chosen() const { return best ? &rows[*best] : nullptr; }
};

/// The table for a job on idle GPUs. Of clusters with several GPU types it takes those from some
/// speed on: the slowest GPU is the pace of a pipeline, so every speed is tried and the best table
/// is the answer. Refuses if no GPU could hold a stage, or no row is feasible.
expected<selection> select_datacenters(const cluster& c, const idle_index& idle,
                                       const job_spec& job, const selection_options& o = {});

/// The best of one order of datacenters.
struct order_outcome {
  std::vector<std::uint32_t> order;
  selection_row row;
  double cost_per_batch = 0;  // of one pipeline's batch; of `whole`, of a sample
  double wan_rtt_ms = 0;      // summed over the hops that it crosses
};

/// What if the datacenters were filled in another order? All orders of up to six that have GPUs,
/// the first of the default order if there are more; best first, and equal outcomes once.
/// Estimated.
std::vector<order_outcome> what_if_orders(const cluster& c, const idle_index& idle,
                                          const job_spec& job, const selection_options& o = {});

/// How to place a training on idle GPUs with its batch as it is (`whole`): Algorithm 1 for every
/// depth, every size of cell up to C, and every order of up to four datacenters. By job.objective:
/// the fastest; the fewest GPUs of those nearly as fast (efficient); or the cheapest sample.
/// `as_wished`: exactly the stages and pipelines that the job asks for, where it does; else at most
/// as many. One row is the answer. Looks no further than `budget`, and at no more GPUs than
/// max_gpus.
expected<selection> select_placement(const cluster& c, const idle_index& idle, const job_spec& job,
                                     bool as_wished, planning_budget& budget);
inline expected<selection> select_placement(const cluster& c, const idle_index& idle,
                                            const job_spec& job, bool as_wished) {
  planning_budget budget;
  return select_placement(c, idle, job, as_wished, budget);
}

}  // namespace troupe::planners
