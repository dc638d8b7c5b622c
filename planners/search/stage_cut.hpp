#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "messages/domain/link_cost.hpp"
#include "planners/search/cut_label.hpp"
#include "planners/search/iteration_bound.hpp"
#include "planners/search/stage_table.hpp"

// The order of stages that differ in speed and memory, and where a model is cut among them, so that
// an iteration is the shortest by the closed form of 1F1B (docs/planners/plan_search.md).

namespace troupe::planners {

/// A set of stages, and all that an iteration depends on but their order and the cut.
struct cut_problem {
  const stage_table* table = nullptr;
  const iteration_bound* bound = nullptr;
  std::vector<std::uint32_t> counts;  // stages, by the table's types
  std::vector<double> bytes;          // of a GPU of each type; a stage needs less
  std::uint32_t microbatches = 1, pipelines = 1;
  std::vector<std::uint32_t> held;  // micro-batches in flight, by the number of stages behind
  // From a stage of a type to the next one, from * types + to; of one type, also to its peers.
  std::vector<link_cost> links;
  // Of a type, how many stages of a pipeline can share a node, and the link from one node to
  // another (no faster than that of `links`).
  std::vector<std::uint32_t> stages_of_node;
  std::vector<link_cost> between_nodes;
  // By type and stage of that type: does it leave its node to reach the next one of its type, if
  // that follows it, in any pipeline? Empty: not known.
  std::vector<std::vector<bool>> leaves_node;
  // Of a type, what a stage sends to its peers over the link that takes the longest, at least.
  struct chunks {
    double count = 0, s_per_byte = 0;  // of one
    double total_s(double bytes) const { return count * (bytes * s_per_byte); }
  };
  std::vector<chunks> chunks_to_peers;
  // What a stage sends to either side goes over one link that no other stage uses.
  bool own_links = true;
  bool lower_bound = false;        // iterations by fidelity::least; else by fidelity::closed
  bool tied = false;               // the first and the last stage sum an embedding that both have
  std::vector<std::size_t> order;  // the stages' types, where only the cut is asked for; else empty

  std::size_t types() const { return counts.size(); }
  std::uint32_t stages() const;
};

/// A stage of a cut.
struct cut_stage {
  std::size_t type = 0;
  std::uint32_t pieces = 0;

  bool operator==(const cut_stage&) const = default;
};

struct stage_cut {
  double iteration_s = std::numeric_limits<double>::infinity();
  std::vector<cut_stage> stages;  // empty: nothing within the limit was found
  /// None is shorter: iteration_s itself, unless the search was cut short.
  double bound_s = std::numeric_limits<double>::infinity();
  /// Where links are shared iteration_s is a bound, too, and other cuts may be shorter: those that
  /// promise most, each with what it takes at least.
  struct alternative {
    double bound_s = 0;
    std::vector<cut_stage> stages;
  };
  std::vector<alternative> others;
};

/// How long one search may take.
struct cut_effort {
  std::uint64_t max_steps = 100'000;
  bool rough = false;  // rather a bound soon than the best cut: where few sets keep the limit
};

/// What a search has allocated, for the next one: most searches are short.
struct cut_memory {
  std::vector<std::vector<cut_label>> labels;
};

/// The shortest iteration of all orders and cuts of exactly the problem's stages, each with at
/// least one piece (the last one of a transformer may have its head alone); none if that is longer
/// than `limit_s`. Exact for evaluate's closed form where the problem is: where `links` hold for
/// every stage of a type, own_links is true, and no embedding is tied. `steps` grows with the work
/// that it was; beyond the effort's `max_steps` it is the best of those that promised most. Of many
/// types of which each has many stages nothing is found, but the bound.
stage_cut cut_for(const cut_problem& problem, double limit_s, std::uint64_t& steps,
                  cut_memory& memory, const cut_effort& effort = {});

/// Every order and cut whose bound is at most `limit_s`, the least bound first; none: they are too
/// many to look at in `max_steps`.
std::optional<std::vector<stage_cut::alternative>> cuts_within(const cut_problem& problem,
                                                               double limit_s, std::uint64_t& steps,
                                                               cut_memory& memory,
                                                               std::uint64_t max_steps);

}  // namespace troupe::planners
