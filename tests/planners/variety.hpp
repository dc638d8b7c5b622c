#pragma once

#include <cmath>
#include <iterator>
#include <string>
#include <vector>

#include "messages/base/random.hpp"
#include "planners/sample.hpp"

// Clusters and jobs with a bit of everything that a cluster file or a job file can contain.

namespace variety {

using namespace troupe;

template <class T, std::size_t N>
const T& one_of(random_source& r, const T (&all)[N]) {
  return all[r.below(N)];
}

inline gpu_type some_gpu(random_source& r, std::string name) {
  const double memory[] = {8, 16, 24, 24, 40, 80};
  auto g = sample::gpu(std::move(name), one_of(r, memory), 40 + 20.0 * double(r.below(12)),
                       0.5 + 0.25 * double(r.below(16)));
  if (r.chance(0.2)) g.fp16_tflops = 0, g.fp32_tflops = 15;
  if (r.chance(0.7)) g.memory_gbytes_s = 300 + 100.0 * double(r.below(15));
  if (r.chance(0.5)) g.kernel_us = 20 + 10.0 * double(r.below(5));
  if (r.chance(0.3)) g.tf32_tflops = 60;
  if (r.chance(0.2)) g.quota = 1 + std::uint32_t(r.below(4));
  if (r.chance(0.3)) g.compute_capability = 7.0 + double(r.below(3));
  return g;
}

/// Up to four types in some datacenters.
inline cluster some_cluster(random_source& r, std::uint32_t max_nodes = 3,
                            std::uint32_t max_datacenters = 3) {
  cluster c;
  const auto datacenters = 1 + std::uint32_t(r.below(max_datacenters));
  for (std::uint32_t d = 0; d < datacenters; ++d)
    c.datacenters.push_back({"d" + std::to_string(d), ""});
  const auto types = 1 + r.below(4);
  const std::uint32_t gpus[] = {1, 2, 4, 4, 8};
  const troupe::link inside[] = {sample::nvlink, sample::pcie, {"slow", 60, 20}};
  for (std::uint64_t t = 0; t < types; ++t) {
    auto g = some_gpu(r, "T" + std::to_string(t));
    if (t > 0 && r.chance(0.3)) {  // equal but for its name
      g = c.gpus[0];
      g.name = "T" + std::to_string(t);
    }
    sample::add_nodes(c, g, 1 + std::uint32_t(r.below(max_nodes)), one_of(r, gpus));
  }
  const bool equal = r.chance(0.5);
  for (auto& n : c.nodes) {
    n.datacenter = std::uint32_t(r.below(datacenters));
    if (equal) continue;
    n.intra = one_of(r, inside);
    n.inter = {"lan", 10 + 10.0 * double(r.below(10)), 5.0 * double(r.below(10))};
    if (r.chance(0.2)) n.emulate_speed = 0.5;
  }
  for (std::uint32_t b = 1; b < datacenters; ++b)
    for (std::uint32_t a = 0; a < b; ++a)
      if (r.chance(0.8))
        c.wan.push_back({a, b, 10.0 * double(1 + r.below(10)), 1 + double(r.below(9)),
                         r.chance(0.5) ? 0 : 0.3});
  if (r.chance(0.4)) c.settings.memory_headroom = 0.1;
  return c;
}

inline model some_model(random_source& r) {
  auto m = sample::gpt2_small;
  switch (r.below(6)) {
    case 0:
      break;
    case 5:
      m = sample::gpt2_7b;
      break;
    case 1:
      m = sample::gpt("untied", 2560, 8, 20, 2048, 32000);
      m.tied_head = false;
      break;
    case 2:
      m = sample::gpt("llama", 2048, 6, 16, 1024, 32000);
      m.family = "llama", m.tied_head = false, m.intermediate = 5504, m.kv_heads = 4;
      break;
    case 3:
      m = sample::gpt("bert", 1024, 24, 16, 512, 30522);
      m.family = "bert";
      break;
    case 4:
      m = sample::gpt("vit", 768, 12, 12, 197, 1000);
      m.family = "vit";
      break;
    default: {
      m = {};
      m.name = "ops";
      const auto n = 3 + r.below(6);
      for (std::uint64_t i = 0; i < n; ++i)
        m.operators.push_back({"op", 1e11 * (0.1 + r.uniform()), 1e8 * (0.1 + r.uniform()),
                               1e6 * (0.1 + r.uniform())});
    }
  }
  return m;
}

inline memory_options some_memory(random_source& r) {
  const char* optimizers[] = {"", "adam", "adam8bit", "momentum", "sgd"};
  const char* precisions[] = {"", "mixed", "bf16", "fp32", "tf32"};
  const char* checkpointings[] = {"", "none", "selective", "full"};
  memory_options o;
  const double sizes[] = {8, 9, 16, 24, 40};  // some are just what a GPU has
  if (r.chance(0.2)) o.gb = one_of(r, sizes);
  o.optimizer = one_of(r, optimizers);
  o.precision = one_of(r, precisions);
  o.zero = std::uint32_t(r.below(4));
  o.checkpointing = one_of(r, checkpointings);
  if (r.chance(0.3)) o.lora_rank = 8, o.lora_targets = r.chance(0.5) ? "attention" : "all";
  if (r.chance(0.3)) o.micro_batch = 1 + std::uint32_t(r.below(3));
  return o;
}

/// A program, with the limits that a user may set.
inline job_spec some_program(random_source& r, const cluster& c) {
  const std::uint32_t batches[] = {1, 2, 4, 6, 8, 12, 16, 32};
  const char* objectives[] = {"efficient", "fastest", "cheapest"};
  const char* kernels[] = {"", "eager", "fused", "flash"};
  auto job = sample::job(some_model(r), one_of(r, batches), 1U << r.below(4));
  job.iterations = 50 + 100 * r.below(20);
  job.objective = one_of(r, objectives);
  job.kernels = one_of(r, kernels);
  job.priority = r.chance(0.2) ? 1 : 0;
  if (r.chance(0.3)) job.microbatches = 2;
  if (r.chance(0.3)) job.memory = some_memory(r);
  if (r.chance(0.15)) job.request.type = c.gpus[r.below(c.gpus.size())].name;
  if (r.chance(0.15)) job.limits.required_gpu_type = c.gpus[r.below(c.gpus.size())].name;
  if (r.chance(0.15)) job.limits.max_gpus = 1U << r.below(4);
  return job;
}

/// Times of a device, a line in the micro-batch's size.
inline device_profile some_profile(random_source& r, const model& m) {
  device_profile p;
  p.device = "measured";
  p.kind = "cuda";
  const auto times = [&](double s) {
    return part_times{s, s * 1.5, s * 2, s * 0.3, s * 0.1, 0, 0};
  };
  model_profile sizes{m.name, m.hidden, m.heads, 4 * m.hidden, m.vocabulary, m.tied_head, {}};
  for (const std::uint32_t rows : {1, 2, 4}) {
    const double s = 1e-4 * (1 + rows) * (1 + r.uniform());
    sizes.points.push_back({m.sequence, rows, times(s), times(1.3 * s), times(0), times(0.2 * s),
                            times(0.7 * s), times(s)});
  }
  p.models.push_back(sizes);
  if (r.chance(0.5)) p.copies.all_reduces = {{2, 100, 20}, {4, 80, 40}};
  return p;
}

/// A training of the built-in trainer, or a pipeline of simulated work.
inline job_spec some_training(random_source& r) {
  const std::uint32_t batches[] = {4, 8, 12, 16, 32};
  const char* devices[] = {"sim", "cpu", "cuda", ""};
  const char* schedules[] = {"", "megatron", "gpipe", "varuna", "atlas", "atlas-least-progress"};
  const char* objectives[] = {"efficient", "fastest", "cheapest"};
  auto job = sample::job(some_model(r), one_of(r, batches));
  job.objective = one_of(r, objectives);
  job.iterations = r.chance(0.3) ? 5 : 1000;
  job.train.emplace();
  job.train->device = one_of(r, devices);
  job.train->schedule = one_of(r, schedules);
  if (r.chance(0.3)) job.train->replan_every = 0;
  if (r.chance(0.3) && job.model.operators.empty() && job.model.family == "gpt")
    job.train->profile = {some_profile(r, job.model)};
  auto& p = job.pipeline;
  p.recompute = r.chance(0.5);
  if (r.chance(0.4)) p.microbatches = 4;
  if (r.chance(0.2)) p.rows = 1;
  if (r.chance(0.2)) p.max_in_flight = 2;
  if (r.chance(0.2)) p.connections = 2;
  if (r.chance(0.15)) {
    job.slots = slot_costs{1, r.chance(0.5) ? 1.0 : 0.5, 2, r.chance(0.5) ? 0.25 : 0.0, 3};
    p.microbatches = 4;
  }
  return job;
}

}  // namespace variety
