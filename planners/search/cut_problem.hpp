#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "messages/domain/link_cost.hpp"
#include "planners/search/iteration_bound.hpp"
#include "planners/search/stage_table.hpp"

namespace troupe::planners {

/// A set of stages, and everything else that an iteration depends on but their order and the cut.
struct cut_problem {
  const stage_table* table = nullptr;
  const iteration_bound* bound = nullptr;
  std::vector<std::uint32_t> counts;  // stages, by the table's types
  std::vector<double> bytes;          // memory of a GPU of each type; a stage must need less
  std::uint32_t microbatches = 1, pipelines = 1;
  std::vector<std::uint32_t> held;  // micro-batches in flight, by the number of stages behind
  // Link from a stage to the next one, by type: from * types + to. The diagonal also reaches peers.
  std::vector<link_cost> links;
  // By type: the most stages of a pipeline that can share a node, and the link between two nodes of
  // the type (no faster than the one in `links`).
  std::vector<std::uint32_t> stages_of_node;
  std::vector<link_cost> between_nodes;
  // By type and stage of that type: whether it must leave its node to reach the next stage of the
  // type, in any pipeline, if that one follows it. Empty: not known.
  std::vector<std::vector<bool>> leaves_node;
  // By type: the chunks of gradients that a stage sends to its peers over the slowest of its links,
  // a lower bound.
  struct chunks {
    double count = 0, s_per_byte = 0;
    double total_s(double bytes) const { return count * (bytes * s_per_byte); }
  };
  std::vector<chunks> chunks_to_peers;
  // Everything that a stage sends to its neighbours goes over one link that no other stage uses.
  bool own_links = true;
  bool lower_bound = false;        // count longer chains: fidelity::lower_bound, else ::closed
  bool tied = false;               // the first and the last stage sum an embedding that both have
  bool agrees = false;             // no stage updates before all can (agrees_on_updates)
  std::vector<std::size_t> order;  // types of the stages, to search for the cut alone; empty: both

  std::size_t types() const { return counts.size(); }
  std::uint32_t stages() const { return std::accumulate(counts.begin(), counts.end(), 0U); }
  /// Parts of the set: the subsets of its stages, by numbers of each type.
  double parts() const {
    double n = 1;
    for (const auto count : counts) n *= count + 1.0;
    return n;
  }
};

}  // namespace troupe::planners
