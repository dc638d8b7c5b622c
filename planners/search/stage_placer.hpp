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
#include "planners/cost/plan_time.hpp"
#include "planners/plans/explicit_plan.hpp"
#include "planners/search/capacity_bound.hpp"
#include "planners/search/stage_cut.hpp"

// Pipelines over GPUs that may differ: how GPUs and the batch can be divided, and the best plan of
// a given set of stages. What searches over sets (plan_search.hpp, Espresso's cost tree) are made
// of.

namespace troupe::planners {

/// Stages of one type of GPU that pipelines could have; perhaps none.
struct stage_type {
  gpu_index gpu = 0;
  std::uint32_t stages = 0;   // of each pipeline, at most
  double bytes = 0;           // of one GPU
  double price_per_hour = 0;  // of such a stage of all pipelines
};

/// How the GPUs and the batch are divided, whatever the set of stages is.
struct division {
  std::uint32_t pipelines = 1, tensor = 1;
  std::vector<stage_type> types;

  std::uint32_t gpus(std::uint32_t stages) const { return stages * tensor * pipelines; }
};

/// Of a set: so many stages of each of a division's types.
using stage_counts = std::vector<std::uint32_t>;

/// The best plan of a set of stages.
struct set_plan {
  std::optional<placed_plan> plan;  // none within the limit
  double iteration_s = std::numeric_limits<double>::infinity();
  /// No plan of the set undercuts this: iteration_s itself, where the closed form of a set depends
  /// on nothing but order and cut; else (stages that share a node, nodes of a type that differ, a
  /// search for the cut that was not through) less, perhaps without a plan.
  double bound_s = std::numeric_limits<double>::infinity();
};

/// Plans simulated work on the idle GPUs, in 1F1B's order.
class stage_placer {
 public:
  /// The job as its stages run it: with the schedule megatron. `idle`: what it may use.
  /// `f`: what iterations are taken to be where that is known: fidelity::closed or fidelity::least.
  stage_placer(const cluster& c, const idle_index& idle, const job_spec& job,
               fidelity f = fidelity::closed);

  const job_spec& job() const { return job_; }
  /// Every number of pipelines that divides the batch, with every number of GPUs that can share a
  /// stage; types within quotas.
  const std::vector<division>& divisions() const { return divisions_; }
  /// Stages that a pipeline can have.
  std::uint32_t max_stages() const;

  /// For pipelines of so many stages. Null: the batch cannot be divided so.
  const iteration_bound* bound(std::size_t division, std::uint32_t stages);
  /// Can the GPUs hold the model, of pipelines that have `counts` stages of each type and `missing`
  /// more of the types from `decided` on? False: none of them can.
  bool may_hold(std::size_t division, const stage_counts& counts, std::size_t decided = 0,
                std::uint32_t missing = 0);
  /// The plan of the shortest iteration, if that is at most `limit_s`. `order`: the types of its
  /// stages, if that is given; any without.
  set_plan place(std::size_t division, const stage_counts& counts, double limit_s,
                 const std::vector<std::size_t>& order = {});
  /// The same, of the cut that is best by `f`.
  set_plan place(std::size_t division, const stage_counts& counts, double limit_s,
                 const std::vector<std::size_t>& order, fidelity f, const cut_effort& effort = {});
  /// All of its cuts whose bound is within the limit (stage_cut.hpp).
  std::optional<std::vector<stage_cut::alternative>> cuts_within(std::size_t division,
                                                                 const stage_counts& counts,
                                                                 double limit_s,
                                                                 std::uint64_t max_steps);
  /// What iterations are taken to be: fidelity::least only where each stage has a node for itself.
  fidelity fidelity_of(std::size_t division) const;
  /// What its order and cut depend on; none: the batch cannot be divided so.
  std::optional<cut_problem> problem_of(std::size_t division, const stage_counts& counts);
  /// The plan of these stages, if their GPUs can hold them; bound_s is iteration_s.
  set_plan plan_of(std::size_t division, const std::vector<cut_stage>& stages);
  /// Work done so far, in a planning_budget's units.
  std::uint64_t units() const { return units_; }

 private:
  struct shape {  // what pipelines of a division have in common that are of so many stages
    batch_split batch;
    const stage_table* table = nullptr;
    std::optional<iteration_bound> bound;
    std::optional<capacity_bound> capacity;
  };
  /// How stages of GPUs of a tensor group's size reach each other, if nothing is in their way.
  struct routes {
    std::vector<stage_table::gpus_of_stage> types;
    std::vector<link_cost> links;               // from * types + to
    std::vector<link_cost> between_nodes;       // of one type
    std::vector<std::uint32_t> stages_of_node;  // by type, at most
    // By type, the node of each stage in the order in which plan_of_stages and layout.cpp take
    // them: pipeline by pipeline. Empty: stages are dealt out to several datacenters first.
    std::vector<std::vector<node_index>> nodes;
    bool alike = true;  // every stage has a node for itself, as all of its type are
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
  double min_bytes_ = 0;  // of all GPUs of a pipeline together, for the parameters' states
  std::vector<division> divisions_;
  std::map<std::uint32_t, routes> routes_;                         // by tensor
  std::map<std::pair<std::size_t, std::uint32_t>, shape> shapes_;  // by division and stages
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::unique_ptr<stage_table>>
      tables_;  // by tensor, rows, and the pipelines if memory depends on them
  cut_memory memory_;
  std::uint64_t units_ = 0;
};

}  // namespace troupe::planners
