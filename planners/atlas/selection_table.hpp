#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "planners/atlas/datacenter_selection.hpp"
#include "planners/core/planning_budget.hpp"
#include "planners/cost/batch_split.hpp"

namespace troupe::planners {

/// What the CUDA device's kernels need of a GPU: tensor cores that take bf16, and copies to shared
/// memory beside the threads.
constexpr double min_compute_capability = 8.0;
/// Whether the job's stages can run there. A GPU of which nothing is known may.
bool can_train(const job_spec& job, const gpu_type& gpu);
/// On which types of the cluster they cannot, and why, to go on a sentence with: "; device cuda
/// needs ...". Empty: they can on all.
std::string left_out(const cluster& c, const job_spec& job);

/// What a node's GPU does for the job, FLOP/s; 0: its stages cannot run there. Of a study in slots,
/// all the same.
double speed_of(const cluster& c, node_index node, const job_spec& job);
/// The speeds of the idle GPUs, slowest first, each once; where a GPU's speed is nothing to the
/// job, one that all of them have.
std::vector<double> speeds_of(const cluster& c, const idle_index& idle, const job_spec& job);

/// Rows of Algorithm 1 over the idle GPUs of at least some speed.
class selection_table {
 public:
  /// `order`: of datacenters; empty: most GPUs first. Those without GPUs are left out. Once
  /// `budget` is exhausted no row is feasible; null: no limit.
  selection_table(const cluster& c, const idle_index& idle, const job_spec& job, double min_flops_s,
                  const std::vector<std::uint32_t>& order, planning_budget* budget = nullptr);
  /// The same GPUs with the datacenters in another order.
  selection_table(const cluster& c, const idle_index& idle, const selection_table& other,
                  const std::vector<std::uint32_t>& order);

  /// GPUs are counted by job.pipeline.tensor_parallel of a node, which share a stage.
  const std::vector<datacenter_offer>& offers() const { return offers_; }
  std::uint32_t total_gpus() const;
  double flops_s() const { return min_flops_s_; }

  /// P: as asked for, else the fewest whose stages fit the memory. Refuses if none do.
  expected<std::uint32_t> stages_for(const selection_options& o) const;
  /// As many as the model has pieces.
  std::uint32_t max_stages() const;
  double communication_to_compute(std::uint32_t stages) const;
  /// Takes what looking at one depth costs from the budget; false: it is exhausted.
  bool spend_for(std::uint32_t stages) const;

  /// Lines 2 to 17 for D = `cells`, the pipeline's time being the bound of its shape. Not feasible
  /// if the partitions, the batch or the memory do not fit.
  selection_row row(std::uint32_t stages, std::uint32_t cell, std::uint32_t cells,
                    batch_rule batch) const;

  /// Simulates every row's schedule instead, if they have no more tasks together.
  bool simulate(selection& s, std::uint64_t max_tasks) const;

 private:
  struct work {
    stage_costs slowest;
    double bytes = 0;  // of the largest stage
    // Where they are measured: each stage's steps, and what the longest update takes; exchanged:
    // with all gradients handed out for it.
    std::vector<step_costs> by_stage{};
    double update_s = 0, exchanged_s = 0;
  };
  const work& work_of(std::uint32_t stages, const batch_split& split) const;
  batch_split split_of(std::uint32_t stages, std::uint32_t pipelines, batch_rule batch) const;
  pipeline_shape shape_of_row(std::uint32_t stages, std::uint32_t cell,
                              const selection_row& r) const;
  double reduce_bytes_s(const selection_row& r) const;
  void finish(selection_row& r, double pipeline_s) const;
  bool shares_wan() const;
  /// What a stage may need by the memory model.
  double max_bytes() const { return slowest_.memory_bytes() / (1 + headroom_); }
  std::string_view schedule() const;

  const job_spec& job_;
  double min_flops_s_, headroom_;
  std::vector<datacenter_offer> offers_;
  std::vector<double> inter_bytes_s_;  // by offer: between its nodes, or inside its only one
  std::vector<double> inter_latency_s_;
  gpu_type slowest_;                    // the least of every property
  double emulated_speed_ = 1;           // of the slowest one's node
  link inside_;                         // of a node, the slowest
  std::vector<std::vector<link>> wan_;  // by offer and offer
  planning_budget* budget_;
  // What stages cost follows from the GPUs alone: tables that differ in the order share it.
  using work_cache = std::map<std::pair<std::uint32_t, std::uint64_t>, work>;
  std::shared_ptr<work_cache> works_;
};

}  // namespace troupe::planners
