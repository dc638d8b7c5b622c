#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "planners/cluster/planning_budget.hpp"
#include "planners/cost/batch_split.hpp"
#include "planners/search/datacenter_selection.hpp"

namespace troupe::planners {

/// Can the job's stages run there? A GPU of unknown capability may.
bool can_train(const job_spec& job, const gpu_type& gpu);
/// The types of the cluster that cannot run them, and why, as the end of a sentence: "; device cuda
/// needs ...". Empty: all can.
std::string left_out(const cluster& c, const job_spec& job);

/// Speed of a node's GPU for the job, FLOP/s; 0: its stages cannot run there. The same for all in
/// slot jobs.
double speed_of(const cluster& c, node_index node, const job_spec& job);
/// The distinct speeds of the idle GPUs, slowest first; a single common one if the job does not
/// depend on the GPU's speed.
std::vector<double> speeds_of(const cluster& c, const idle_index& idle, const job_spec& job);

/// Rows of Algorithm 1 over the idle GPUs that have at least some speed.
class selection_table {
 public:
  /// `order`: of datacenters; empty: most GPUs first. Datacenters without GPUs are left out. When
  /// `budget` is exhausted no row is feasible; null: no limit.
  selection_table(const cluster& c, const idle_index& idle, const job_spec& job, double min_flops_s,
                  const std::vector<std::uint32_t>& order, planning_budget* budget = nullptr);
  /// The same GPUs with the datacenters in another order.
  selection_table(const cluster& c, const idle_index& idle, const selection_table& other,
                  const std::vector<std::uint32_t>& order);

  /// GPUs are counted in groups of job.pipeline.tensor_parallel, which share a stage.
  const std::vector<datacenter_offer>& offers() const { return offers_; }
  std::uint32_t total_gpus() const;
  double flops_s() const { return min_flops_s_; }

  /// P: as requested, else the minimum that fits the memory. Fails if none does.
  expected<std::uint32_t> stages_for(const selection_options& o) const;
  /// The number of the model's pieces.
  std::uint32_t max_stages() const;
  double communication_to_compute(std::uint32_t stages) const;
  /// Spends the cost of evaluating one depth; false: the budget is exhausted.
  bool spend_for(std::uint32_t stages) const;

  /// Lines 2 to 17 for D = `cells`, with the lower bound of the shape as the pipeline's time. Not
  /// feasible if the partitions, the batch or the memory do not fit.
  selection_row row(std::uint32_t stages, std::uint32_t cell, std::uint32_t cells,
                    batch_rule batch) const;

  /// Simulates every row's schedule instead, if their tasks together do not exceed the limit.
  bool simulate(selection& s, std::uint64_t max_tasks) const;

 private:
  struct work {
    stage_costs slowest;
    double bytes = 0;  // of the largest stage
    // If profiled: step times of each stage, and the longest update; exchanged: with copying of
    // gradients to the host.
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
  /// The memory limit per stage by the memory model, beside a guest.
  double max_bytes() const {
    return (slowest_.memory_bytes() - guest_bytes(job_)) / (1 + headroom_);
  }
  std::string_view schedule() const;

  const job_spec& job_;
  double min_flops_s_, headroom_;
  std::vector<datacenter_offer> offers_;
  std::vector<double> inter_bytes_s_;  // by offer: between its nodes, or inside its only node
  std::vector<double> inter_latency_s_;
  gpu_type slowest_;                    // the minimum of every property
  double emulated_speed_ = 1;           // of the slowest GPU's node
  link inside_;                         // inside a node, the slowest
  std::vector<std::vector<link>> wan_;  // by offer and offer
  planning_budget* budget_;
  // The stages' costs depend on the GPUs only: tables that differ in the order share them.
  using work_cache = std::map<std::pair<std::uint32_t, std::uint64_t>, work>;
  std::shared_ptr<work_cache> works_;
};

}  // namespace troupe::planners
