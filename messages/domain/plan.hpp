#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "messages/base/fields.hpp"
#include "messages/base/units.hpp"

namespace troupe {

/// A stage of each of a plan's pipelines. The GPUs of a stage are in one node.
struct plan_stage {
  std::uint32_t first = 0;            // its first piece of the model
  std::uint32_t count = 0;            // number of pieces; the last stage also has the head
  std::uint32_t tensor_parallel = 1;  // GPUs of a node that share it
  std::optional<gpu_index> gpu;       // their type, an index into the cluster's types; none: any
  double bytes_per_gpu = 0;
  /// Index into the cluster's datacenters; none: the layout finds it (planners/cost/layout.hpp).
  std::optional<std::uint32_t> datacenter{};
  /// Micro-batches in flight at most; none: the schedule's own number.
  std::optional<std::uint32_t> held{};
  static constexpr std::size_t required = 5;

  TROUPE_FIELDS(plan_stage, first, count, tensor_parallel, gpu, bytes_per_gpu, datacenter, held);
};

/// Equal pipelines of a plan.
struct pipeline_group {
  std::uint32_t pipelines = 1;
  std::uint32_t microbatches = 1;  // of each of them in an iteration
  std::vector<plan_stage> stages;  // the cut, first and count, is that of all groups

  TROUPE_FIELDS(pipeline_group, pipelines, microbatches, stages);
};

/// One way to run a job: its split, the memory per GPU, and the expected speed. A plan names the
/// minimum memory instead of a GPU type; `gpu_types` are the types that have it.
struct plan {
  std::uint32_t data_parallel = 1;
  std::uint32_t tensor_parallel = 1;
  std::uint32_t pipeline_parallel = 1;
  double bytes_per_gpu = 0;  // memory needed per GPU
  double samples_per_s = 0;  // on the slowest of gpu_types
  double cost_per_hour = 0;  // on the cheapest of gpu_types
  /// Indices into the cluster's GPU types, in order of their first use in the file.
  std::vector<gpu_index> gpu_types;
  bool tensor_in_node = true;  // the cluster has enough nodes to keep each tensor group within one
  /// Micro-batches of a pipeline of planned stages; 0: a program makes its own stages.
  std::uint32_t microbatches = 0;
  std::uint32_t rows = 0;  // samples of a micro-batch
  /// The stages of each pipeline, as many as pipeline_parallel; empty: a program's plan.
  std::vector<plan_stage> stages{};
  /// None: all pipelines are as `stages` and `microbatches` say. Else data_parallel is the number
  /// of all pipelines, and `stages` and `microbatches` are the first group's. Pipelines are
  /// numbered group by group, and everything that is summed over them is summed in that order. Read
  /// by groups_of() alone.
  std::optional<std::vector<pipeline_group>> groups{};
  /// The price of what an iteration sends between datacenters; none: 0.
  std::optional<double> traffic_per_iteration{};
  static constexpr std::size_t required = 8;

  std::uint32_t gpus() const;

  TROUPE_FIELDS(plan, data_parallel, tensor_parallel, pipeline_parallel, bytes_per_gpu,
                samples_per_s, cost_per_hour, gpu_types, tensor_in_node, microbatches, rows, stages,
                groups, traffic_per_iteration);
};

/// A group of a plan that outlives it.
struct group_view {
  std::uint32_t pipelines = 0, microbatches = 0;
  const std::vector<plan_stage>& stages;

  std::uint32_t gpus() const {
    std::uint32_t of_a_pipeline = 0;
    for (const auto& s : stages) of_a_pipeline += s.tensor_parallel;
    return pipelines * of_a_pipeline;
  }
};

/// The groups of a plan with stages, in the order of its pipelines: one if all are alike.
inline std::vector<group_view> groups_of(const plan& how) {
  if (!how.groups) return {{how.data_parallel, how.microbatches, how.stages}};
  std::vector<group_view> all;
  for (const auto& g : *how.groups) all.push_back({g.pipelines, g.microbatches, g.stages});
  return all;
}
std::vector<group_view> groups_of(plan&&) = delete;

inline std::uint32_t plan::gpus() const {
  if (stages.empty()) return data_parallel * tensor_parallel * pipeline_parallel;
  std::uint32_t n = 0;
  for (const auto& g : groups_of(*this)) n += g.gpus();
  return n;
}

/// A number of GPUs of one node.
struct node_share {
  node_index node = 0;     // index in the cluster
  std::uint32_t gpus = 0;  // how many of that node

  TROUPE_FIELDS(node_share, node, gpus);
};

/// Where a job runs: the first entry's node has rank 0. A plan's stages take the GPUs in this order
/// (planners/cost/layout.hpp).
using allocation = std::vector<node_share>;

inline std::uint32_t total_gpus(const allocation& a) {
  std::uint32_t n = 0;
  for (const auto& share : a) n += share.gpus;
  return n;
}

/// Specific GPUs of one node, and the node's incarnation at that time.
struct lease_part {
  node_index node = 0;                 // index in the cluster
  std::uint64_t incarnation = 0;       // the node's
  std::vector<std::uint16_t> devices;  // GPUs of the node

  TROUPE_FIELDS(lease_part, node, incarnation, devices);
};

}  // namespace troupe
