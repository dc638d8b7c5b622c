#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "messages/base/random.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/cost/batch_split.hpp"
#include "planners/plans/marp.hpp"
#include "planners/policy/placement.hpp"
#include "planners/policy/policy.hpp"

// Clusters, models and snapshots that the tests of this room share.

namespace sample {

using namespace troupe;

inline gpu_type gpu(std::string name, double memory_gb, double tflops, double price = 1) {
  gpu_type g;
  g.name = std::move(name);
  g.memory_gb = memory_gb;
  g.fp16_tflops = tflops;
  g.fp32_tflops = tflops / 8;
  g.price_per_hour = price;
  return g;
}

inline const troupe::link nvlink{"nvlink", 4800, 2}, pcie{"pcie", 200, 5},
    ethernet{"ethernet", 100, 10};

inline void add_nodes(cluster& c, const gpu_type& g, std::uint32_t nodes, std::uint32_t gpus) {
  gpu_index type = 0;
  while (type < c.gpus.size() && c.gpus[type].name != g.name) ++type;
  if (type == c.gpus.size()) c.gpus.push_back(g);
  if (c.datacenters.empty()) c.datacenters.push_back({"dc", ""});
  for (std::uint32_t i = 0; i < nodes; ++i) {
    node n;
    n.name = "n" + std::to_string(c.nodes.size());
    n.gpu = type;
    n.gpus = gpus;
    n.intra = pcie;
    n.inter = ethernet;
    c.nodes.push_back(std::move(n));
  }
}

inline const gpu_type a100_40 = gpu("A100-40GB", 40, 312, 3.67),
                      a100_80 = gpu("A100-80GB", 80, 312, 5.12),
                      rtx2080ti = gpu("RTX2080Ti", 11, 108, 0.5),
                      rtx6000 = gpu("RTX6000", 24, 130, 1.2);

inline model gpt(std::string name, std::uint32_t hidden, std::uint32_t layers, std::uint32_t heads,
                 std::uint32_t sequence = 1024, std::uint32_t vocabulary = 50257) {
  model m;
  m.name = std::move(name);
  m.hidden = hidden;
  m.layers = layers;
  m.heads = heads;
  m.sequence = sequence;
  m.vocabulary = vocabulary;
  return m;
}

inline const model gpt2_7b = gpt("gpt2-7b", 4096, 32, 32),
                   gpt2_350m = gpt("gpt2-350m", 1024, 24, 16),
                   gpt2_small = gpt("gpt2", 768, 12, 12);

inline job_spec job(const model& m, std::uint32_t batch, std::uint32_t gpus = 1) {
  job_spec j;
  j.name = m.name;
  j.model = m;
  j.global_batch = batch;
  j.iterations = 1000;
  j.request.gpus = gpus;
  return j;
}

/// A plan of that many stages and pipelines, cut by split_model.
inline plan staged(const job_spec& j, std::uint32_t stages, std::uint32_t pipelines) {
  plan how;
  how.data_parallel = pipelines;
  how.pipeline_parallel = stages;
  how.tensor_parallel = std::max(1U, j.pipeline.tensor_parallel);
  const auto batch = planners::split_batch(j, stages, pipelines);
  how.microbatches = batch.microbatches;
  how.rows = batch.rows;
  how.stages = planners::stages_of(j, how, 1e18, 0);
  return how;
}

/// A cluster of 1 to 5 types of a few nodes of 1 to 8 GPUs; equal memory sizes happen.
inline cluster random_cluster(random_source& r, std::uint32_t max_nodes = 6) {
  cluster c;
  const double sizes[] = {11, 16, 24, 24, 40, 80};
  const auto types = 1 + r.below(5);
  for (std::uint64_t t = 0; t < types; ++t) {
    const auto g = gpu("T" + std::to_string(t), sizes[r.below(6)], 50 + double(r.below(10)) * 30,
                       0.5 + double(r.below(8)) * 0.5);
    const std::uint32_t gpus[] = {1, 2, 3, 4, 8};
    add_nodes(c, g, 1 + std::uint32_t(r.below(max_nodes)), gpus[r.below(5)]);
  }
  return c;
}

inline void random_idle(planners::idle_index& idle, const cluster& c, random_source& r) {
  for (node_index n = 0; n < c.nodes.size(); ++n) {
    idle.set_idle(n, std::uint32_t(r.below(c.nodes[n].gpus + 1)));
  }
}

}  // namespace sample
