#pragma once

#include <memory>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/serving.hpp"

// Three datacenters, five nodes, fourteen GPUs of three types: what most tests of the graph run on.

namespace troupe::harness {

inline std::shared_ptr<cluster> small_cluster() {
  auto c = std::make_shared<cluster>();
  c->name = "small";
  c->gpus = {{"A100-40GB", 40, 312, 19.5, 1555, 0.45, 3.67, ""},
             {"A40", 48, 150, 37, 696, 0.45, 1.3, ""},
             {"RTX2080Ti", 11, 108, 13.4, 616, 0.45, 0.3, ""}};
  const link intra{"pcie4", 256, 1}, inter{"eth100", 100, 20};
  c->datacenters = {{"dc1", ""}, {"dc2", ""}, {"dc3", ""}};
  c->nodes = {{"a-0", 0, 0, 4, intra, inter},
              {"a-1", 0, 0, 2, intra, inter},
              {"b-0", 1, 1, 2, intra, inter},
              {"b-1", 1, 1, 2, intra, inter},
              {"c-0", 2, 2, 4, intra, inter}};
  c->wan = {{0, 1, 40, 5, 0.293}, {0, 2, 20, 5, 0.586}, {1, 2, 40, 5, 0.293}};
  c->settings.heartbeat_s = 1;
  c->settings.lease_s = 5;
  c->settings.restart_s = 2;
  c->settings.checkpoint_s = 60;
  return c;
}

/// A GPT-2 of `layers` layers; 12 are 124M.
inline model gpt2(std::uint32_t layers = 12, std::uint32_t hidden = 768, std::uint32_t heads = 12) {
  model m;
  m.name = "gpt2";
  m.hidden = hidden;
  m.layers = layers;
  m.heads = heads;
  m.sequence = 1024;
  m.vocabulary = 50257;
  return m;
}

inline job_spec small_job(std::string name, std::uint64_t iterations = 200,
                          std::uint32_t batch = 4) {
  job_spec spec;
  spec.name = std::move(name);
  spec.model = gpt2();
  spec.global_batch = batch;
  spec.iterations = iterations;
  return spec;
}

/// A training of two layers, which PyTorch computes, as a submitter that has it describes them.
inline job_spec layers_job(std::string file) {
  job_spec spec;
  spec.name = "layers";
  spec.global_batch = 8;
  spec.iterations = 100;
  spec.model.name = "its";
  spec.model.family = "layers";
  spec.model.tied_head = false;
  spec.model.layers = 2;
  for (const auto* name : {"0-Layer", "1-Layer"})
    spec.model.operators.push_back({name, 1e9, 1e6, 1000, 4000, 8e6, false});
  spec.train.emplace().device = "cpu";
  auto& p = spec.train->program.emplace();
  p.file = std::move(file);
  p.sha256 = std::string(64, 'a');
  return spec;
}

/// A served model that is known by its name alone.
inline served_model_files model_named(const char* name) {
  served_model_files m;
  m.name = name;
  return m;
}

}  // namespace troupe::harness
