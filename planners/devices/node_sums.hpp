#pragma once

#include <string>
#include <vector>

#include "messages/domain/cluster.hpp"

// All-reduces among the GPUs of a node by their number (docs/planners/cost_model.md, "All-reduces
// inside a node").

namespace troupe::planners {

/// Rates by number of GPUs, and where they are from.
struct node_sums {
  std::vector<group_rate> rates;
  std::string source;
  bool guess = false;  // such nodes differ: other ones reach a fraction of these rates
};

/// The published rates of a node's kind of link; null: none, or the GPU type's catalogue entry
/// has no kernel_us: its efficiency is a whole training's, all-reduces included.
const node_sums* sums_of_kind(const link& inside, const gpu_type& gpu);

/// The rates of a node: those of the cluster file, else of the kind of link. Null: neither is
/// known, so that a ring over the link counts.
const std::vector<group_rate>* group_rates_of(const link& inside, const gpu_type& gpu);

/// Seconds of an all-reduce of `bytes` among `gpus`: with L and the rate B of that number of GPUs,
/// (sqrt(L) + sqrt(2 (gpus - 1) / gpus * bytes / B))^2, and no less than 2 us for each GPU. That is
/// the time of a tensor which is cut into the best number of pieces, where each costs a latency and
/// all of them follow one another. Between two numbers of GPUs L and B are linear in log2 of the
/// number, outside constant. Precondition: are_group_rates().
double all_reduce_s(const std::vector<group_rate>& rates, double gpus, double bytes);

}  // namespace troupe::planners
