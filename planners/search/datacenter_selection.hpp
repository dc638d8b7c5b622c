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
#include "planners/search/selection.hpp"

// ATLAS, section 4.5, Algorithm 1: the number of DP-cells, and of partitions of the pipeline in
// each datacenter (docs/planners/datacenter_selection.md).

namespace troupe::planners {

/// Algorithm 1's table for a job on idle GPUs. The paper has one GPU type. With several, the
/// slowest GPU determines a pipeline's speed, so more GPUs may mean slower ones: every distinct
/// speed is tried as the minimum, and the table with the best row is returned. Fails if no GPU can
/// hold a stage, or no row is feasible.
expected<selection> select_datacenters(const cluster& c, const idle_index& idle,
                                       const job_spec& job, const selection_options& o = {});

/// The best row of one order of datacenters.
struct order_outcome {
  std::vector<std::uint32_t> order;
  selection_row row;
  double cost_per_batch = 0;  // for one pipeline's batch; with `whole`, for one sample
  double wan_rtt_ms = 0;      // round trips, summed over the pipeline's WAN hops
};

/// Compares the orders in which datacenters are filled, the input `DCs` of Algorithm 1: all orders
/// of up to six datacenters that have GPUs, else the default order alone. Best first, without
/// duplicates; pipeline times are lower bounds.
std::vector<order_outcome> what_if_orders(const cluster& c, const idle_index& idle,
                                          const job_spec& job, const selection_options& o = {});

/// Places a training with its global batch (`whole`) on idle GPUs: Algorithm 1 for every depth P,
/// every cell size up to C, and every order of up to four datacenters. By job.objective: the
/// fastest; the one with the fewest GPUs among those within 2 % of it (efficient); or the cheapest
/// per sample. `as_wished`: exactly the stages and pipelines that the job requests; else at most as
/// many. Returns a table of one row. Limited by `budget` and max_gpus.
expected<selection> select_placement(const cluster& c, const idle_index& idle, const job_spec& job,
                                     bool as_wished, planning_budget& budget);

}  // namespace troupe::planners
