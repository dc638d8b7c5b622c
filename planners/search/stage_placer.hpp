#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/cluster/idle_index.hpp"
#include "planners/cost/batch_split.hpp"
#include "planners/cost/model_partition.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/plans/explicit_plan.hpp"
#include "planners/search/capacity_bound.hpp"
#include "planners/search/stage_cut.hpp"

// The best plan of a given set of stages over mixed GPUs, and the ways to divide GPUs and batch:
// the stage placer of Espresso (section III.C), exact here. docs/planners/plan_search.md describes
// it.

namespace troupe::planners {

/// Stages that pipelines can have on one GPU type; possibly none.
struct stage_type {
  gpu_index gpu = 0;
  std::uint32_t stages = 0;   // per pipeline, at most: by the idle GPUs and the quota
  double bytes = 0;           // memory of one GPU
  double price_per_hour = 0;  // of the GPUs of one such stage in all pipelines
};

/// A set: the number of stages of each of a division's types.
using stage_counts = std::vector<std::uint32_t>;

/// A number of pipelines and of GPUs per stage: what is fixed before the set of stages is chosen
/// (Espresso, Algorithm 1, lines 3 and 5).
struct division {
  std::uint32_t pipelines = 1, tensor = 1;
  std::vector<stage_type> types;

  std::uint32_t gpus(std::uint32_t stages) const { return stages * tensor * pipelines; }
  double price_per_hour(const stage_counts& counts) const {
    double price = 0;
    for (std::size_t t = 0; t < counts.size(); ++t) price += counts[t] * types[t].price_per_hour;
    return price;
  }
};

/// The best plan of a set of stages.
struct set_plan {
  std::optional<placed_plan> plan;  // none within the limit
  double iteration_s = std::numeric_limits<double>::infinity();
  /// Lower bound over all plans of the set. It is iteration_s itself if the closed form depends
  /// only on order and cut and the search ended. It is less, perhaps without a plan, if stages
  /// share a node, nodes of a type differ, or the search for the cut was cut short.
  double bound_s = std::numeric_limits<double>::infinity();
};

/// Places sets of stages of simulated work on the idle GPUs, in 1F1B's order. Keeps what divisions,
/// depths and ranges cost between calls; keeps references to the cluster and the idle index.
class stage_placer {
 public:
  /// `idle`: the GPUs that the job may use. `f`: how iterations are estimated where each stage has
  /// a node for itself: fidelity::closed or fidelity::lower_bound; elsewhere it is closed.
  stage_placer(const cluster& c, const idle_index& idle, const job_spec& job,
               fidelity f = fidelity::closed);

  /// The job as its stages run it: with the schedule megatron.
  const job_spec& job() const { return job_; }
  /// Every number of pipelines that divides the batch, with every number of GPUs that can share a
  /// stage; types within quotas.
  const std::vector<division>& divisions() const { return divisions_; }
  /// The most stages that a pipeline can have: the model's pieces.
  std::uint32_t max_stages() const { return pieces_of(job_.model); }

  /// The bound for pipelines of `stages` stages. Null: the batch cannot be divided among them.
  const iteration_bound* bound(std::size_t division, std::uint32_t stages);
  /// Whether pipelines of `counts` stages of each type and `missing` more of the types from
  /// `decided` on may hold the model. False is certain: none can (capacity_bound.hpp).
  bool may_hold(std::size_t division, const stage_counts& counts, std::size_t decided = 0,
                std::uint32_t missing = 0);
  /// The plan with the shortest iteration, if that is at most `limit_s`. `order`: the types of its
  /// stages from the first on; empty: any order. `f`: by which its cut is the best; none:
  /// fidelity_of(division).
  set_plan place(std::size_t division, const stage_counts& counts, double limit_s,
                 const std::vector<std::size_t>& order = {}, std::optional<fidelity> f = {},
                 const cut_effort& effort = {});
  /// All orders and cuts of a set whose bound is within the limit (stage_cut.hpp).
  std::optional<std::vector<stage_cut::alternative>> cuts_within(std::size_t division,
                                                                 const stage_counts& counts,
                                                                 double limit_s,
                                                                 std::uint64_t max_steps);
  /// How a division's iterations are estimated: fidelity::lower_bound only where each stage has a
  /// node for itself.
  fidelity fidelity_of(std::size_t division) const;
  /// The input of the search for order and cut; none: the batch cannot be divided.
  std::optional<cut_problem> problem_of(std::size_t division, const stage_counts& counts);
  /// The plan with these stages, if their GPUs can hold them; bound_s is iteration_s.
  set_plan plan_of(std::size_t division, const std::vector<cut_stage>& stages);
  /// Work done so far, in a planning_budget's units.
  std::uint64_t units() const { return units_; }

 private:
  /// Shared by all sets of one division and number of stages.
  struct shape {
    batch_split batch;
    const stage_table* table = nullptr;
    std::optional<iteration_bound> bound;
    std::optional<capacity_bound> capacity;
  };
  /// The links between stages of one tensor group size, each the best that any placement gives:
  /// with them, bounds hold for every placement.
  struct routes {
    std::vector<stage_table::gpus_of_stage> types;
    std::vector<link_cost> links;               // from * types + to
    std::vector<link_cost> between_nodes;       // by type
    std::vector<std::uint32_t> stages_of_node;  // by type, at most
    // By type: the node of each stage in the order in which plan_of_stages and layout.cpp fill
    // them, pipeline by pipeline. Empty: not known, stages are dealt out to several datacenters
    // first.
    std::vector<std::vector<node_index>> nodes;
    bool alike = true;  // every stage has a node for itself, and the nodes of a type are equal
  };
  routes routes_of(std::uint32_t tensor) const;
  void set_nodes(routes& r, const std::vector<std::vector<node_index>>& nodes,
                 std::uint32_t tensor) const;
  static cut_problem::chunks chunks_to_peers(const routes& r, std::size_t type,
                                             std::uint32_t pipelines, std::uint32_t stages);
  static std::vector<bool> hops_between_nodes(const routes& r, std::size_t type,
                                              std::uint32_t pipelines, std::uint32_t stages);
  void add_divisions(std::uint32_t tensor);
  shape& shape_for(std::size_t division, std::uint32_t stages);
  std::vector<std::uint32_t> held_by(const shape& s, std::uint32_t stages) const;
  const stage_table& table_of(std::uint32_t tensor, std::uint32_t rows, std::uint32_t pipelines);

  const cluster& c_;
  const idle_index& idle_;
  job_spec job_;
  fidelity fidelity_;
  double min_bytes_ = 0;  // that all GPUs of a pipeline together need for the parameters' states
  std::vector<division> divisions_;
  std::map<std::uint32_t, routes> routes_;                         // by tensor
  std::map<std::pair<std::size_t, std::uint32_t>, shape> shapes_;  // by division and stages
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::unique_ptr<stage_table>>
      tables_;  // by tensor, rows, and the pipelines if memory depends on them
  cut_memory memory_;
  std::uint64_t units_ = 0;
};

}  // namespace troupe::planners
