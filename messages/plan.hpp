#pragma once

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "messages/units.hpp"

namespace troupe {

/// One stage of each of a plan's pipelines. Every peer of a stage has GPUs of one node.
struct plan_stage {
  std::uint32_t first = 0, count = 0;  // pieces of the model (docs/planners/cost_model.md)
  std::uint32_t tensor_parallel = 1;   // GPUs of a node that share it
  std::optional<gpu_index> gpu;        // their type; empty: any whose memory suffices
  double bytes_per_gpu = 0;

  static constexpr auto fields() {
    using t = plan_stage;
    return std::tuple{&t::first, &t::count, &t::tensor_parallel, &t::gpu, &t::bytes_per_gpu};
  }
  bool operator==(const plan_stage&) const = default;
};

/// One way to run a job: how it is split, what a GPU must hold, and how fast it is expected to be.
/// A plan names the smallest memory it needs, not a GPU type; `gpu_types` are those that would do.
struct plan {
  std::uint32_t data_parallel = 1;
  std::uint32_t tensor_parallel = 1;
  std::uint32_t pipeline_parallel = 1;
  double bytes_per_gpu = 0;
  double samples_per_s = 0;  // on the slowest of gpu_types
  double cost_per_hour = 0;  // on the cheapest of gpu_types
  std::vector<gpu_index> gpu_types;
  bool tensor_in_node = true;  // the cluster has nodes enough to keep each tensor group in one
  // Of a job that is trained as pipelines; empty: its program makes its own stages.
  std::uint32_t microbatches = 0, rows = 0;  // of a pipeline; samples of a micro-batch
  std::vector<plan_stage> stages{};          // as many as pipeline_parallel
  static constexpr std::size_t required = 8;

  std::uint32_t gpus() const {
    if (stages.empty()) return data_parallel * tensor_parallel * pipeline_parallel;
    std::uint32_t of_a_pipeline = 0;
    for (const auto& s : stages) of_a_pipeline += s.tensor_parallel;
    return data_parallel * of_a_pipeline;
  }
  static constexpr auto fields() {
    using t = plan;
    return std::tuple{&t::data_parallel, &t::tensor_parallel, &t::pipeline_parallel,
                      &t::bytes_per_gpu, &t::samples_per_s,   &t::cost_per_hour,
                      &t::gpu_types,     &t::tensor_in_node,  &t::microbatches,
                      &t::rows,          &t::stages};
  }
  bool operator==(const plan&) const = default;
};

/// So many GPUs of one node.
struct node_share {
  node_index node = 0;
  std::uint32_t gpus = 0;

  static constexpr auto fields() { return std::tuple{&node_share::node, &node_share::gpus}; }
  bool operator==(const node_share&) const = default;
};

/// Where a job runs: the first entry's node is rank 0. A plan's stages take the GPUs in this order
/// (planners/pipeline/layout.hpp).
using allocation = std::vector<node_share>;

inline std::uint32_t total_gpus(const allocation& a) {
  std::uint32_t n = 0;
  for (const auto& share : a) n += share.gpus;
  return n;
}

/// GPUs of one node, named one by one, and the node's incarnation that they were taken from.
struct lease_part {
  node_index node = 0;
  std::uint64_t incarnation = 0;
  std::vector<std::uint16_t> devices;

  static constexpr auto fields() {
    return std::tuple{&lease_part::node, &lease_part::incarnation, &lease_part::devices};
  }
  bool operator==(const lease_part&) const = default;
};

}  // namespace troupe
