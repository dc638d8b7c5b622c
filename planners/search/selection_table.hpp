#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/job.hpp"
#include "planners/cluster/idle_index.hpp"
#include "planners/cluster/planning_budget.hpp"
#include "planners/cost/batch_split.hpp"
#include "planners/cost/slowest_link.hpp"
#include "planners/schedule/schedule.hpp"
#include "planners/search/selection.hpp"

// The rows of Algorithm 1 (ATLAS, section 4.5; docs/planners/datacenter_selection.md): how long an
// iteration takes if D DP-cells of C pipelines fill the datacenters in a given order.

namespace troupe::planners {

/// Whether the job's stages can run on GPUs of this type; true if the capability is unknown.
bool can_train(const job_spec& job, const gpu_type& gpu);
/// The types of the cluster for which can_train is false, and why, as the end of a sentence:
/// "; device cuda requires ...". Empty: there are none.
std::string left_out(const cluster& c, const job_spec& job);

/// Speed of a node's GPU for the job, FLOP/s; 0: the job's stages cannot run there. 1 for slot
/// jobs, whose steps take equally long on every GPU.
double speed_of(const cluster& c, node_index node, const job_spec& job);
/// The distinct speeds of the idle GPUs, slowest first; one for slot jobs.
std::vector<double> speeds_of(const cluster& c, const idle_index& idle, const job_spec& job);

/// Rows of Algorithm 1 over the idle GPUs that are at least as fast as a minimum. Every stage is
/// timed on one imaginary GPU with the smallest value of each property, since peers and neighbours
/// wait for the slowest. Keeps a reference to the job.
class selection_table {
 public:
  /// `order`: the datacenters in the order in which they are filled; empty: most GPUs first.
  /// Datacenters without GPUs are left out. When `budget` is exhausted no row is feasible; null: no
  /// limit.
  selection_table(const cluster& c, const idle_index& idle, const job_spec& job, double min_flops_s,
                  const std::vector<std::uint32_t>& order, planning_budget* budget = nullptr);
  /// The same GPUs with the datacenters in another order.
  selection_table(const cluster& c, const idle_index& idle, const selection_table& other,
                  const std::vector<std::uint32_t>& order);

  /// GPUs are counted in groups of job.pipeline.tensor_parallel, each of which shares a stage.
  const std::vector<datacenter_offer>& offers() const { return offers_; }
  std::uint32_t total_gpus() const;
  double flops_s() const { return min_flops_s_; }

  /// P: as requested, else the fewest stages whose memory fits. Fails if no number does.
  expected<std::uint32_t> stages_for(const selection_options& o) const;
  /// The number of the model's pieces; of a slot job, its stages.
  std::uint32_t max_stages() const;
  /// C of the slowest hop that the order can cross, with micro-batches of one sequence.
  double communication_to_compute(std::uint32_t stages) const;
  /// Spends the cost of evaluating one depth; false: the budget is exhausted.
  bool spend_for(std::uint32_t stages) const;

  /// Lines 2 to 17 for D = `cells`, with the lower bound of the shape as the pipeline's time. Not
  /// feasible if the partitions, the batch or the memory do not fit.
  selection_row row(std::uint32_t stages, std::uint32_t cell, std::uint32_t cells,
                    batch_rule batch) const;

  /// Replaces the bounds of all rows by simulated schedules. False, and nothing is changed: the
  /// distinct shapes have more than `max_tasks` tasks.
  bool simulate(selection& s, std::uint64_t max_tasks) const;

 private:
  /// Costs of one cut of the model.
  struct work {
    stage_costs slowest;  // the maximum over the stages of each value
    double bytes = 0;     // memory of the largest stage
    // Only with a profile: step times of each stage; the longest update, without and with copying
    // gradients to the host.
    std::vector<step_costs> by_stage{};
    std::vector<std::uint64_t> activation_bytes{};
    double update_s = 0, exchanged_s = 0;
  };
  const work& work_of(std::uint32_t stages, const batch_split& split) const;
  batch_split split_of(std::uint32_t stages, std::uint32_t pipelines, batch_rule batch) const;
  pipeline_shape shape_of_row(std::uint32_t stages, std::uint32_t cell,
                              const selection_row& r) const;
  double reduce_bytes_s(const selection_row& r, double bytes) const;
  /// GPUs that send a stage's tensors together.
  std::uint32_t flows() const { return std::max(1U, job_.pipeline.tensor_parallel); }
  void finish(selection_row& r, double pipeline_s) const;
  bool shares_wan() const { return schedule().starts_with("atlas"); }
  /// Memory that the model's cut may use per stage, bytes: less headroom and a guest's.
  double max_bytes() const {
    return (slowest_.memory_bytes() - guest_bytes(job_)) / (1 + headroom_);
  }
  std::string_view schedule() const;

  double traffic_price(const selection_row& r) const;

  const cluster& c_;
  const job_spec& job_;
  double min_flops_s_, headroom_;
  std::vector<datacenter_offer> offers_;
  std::vector<slowest_link> hops_;  // by offer: between its nodes, or inside its only node
  std::vector<double> hop_latency_s_;
  gpu_type slowest_;  // the slowest; the least memory and bandwidth of all
  gpu_index slowest_type_ = 0;
  double emulated_speed_ = 1;  // of the slowest GPU's node
  link inside_;                // of all nodes, or without a name and curves, as slow as the slowest
  std::vector<std::vector<link>> wan_;  // by offer and offer
  planning_budget* budget_;
  // Costs depend on the GPUs but not on the datacenters' order: tables that differ only in the
  // order share them. By stages and batch split.
  using work_cache = std::map<std::pair<std::uint32_t, std::uint64_t>, work>;
  std::shared_ptr<work_cache> works_;
};

}  // namespace troupe::planners
