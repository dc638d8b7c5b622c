#include <catch2/catch.hpp>

#include "actors/worlds/training_simulation.hpp"
#include "messages/random.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/pipeline/placement.hpp"

// One answer to how long an iteration takes: what is estimated of a plan is what its trainer
// expects.

using namespace troupe;
using namespace troupe::actors;

namespace {

struct random_case {
  std::shared_ptr<cluster> on = std::make_shared<cluster>();
  job_spec job;
};

/// A transformer in stages of all sizes, on nodes of one datacenter.
random_case draw(random_source& r) {
  random_case x;
  auto& c = *x.on;
  c.name = "random";
  gpu_type gpu;
  gpu.name = "G";
  gpu.memory_gb = 1e6;
  gpu.fp16_tflops = 20.0 + static_cast<double>(r.below(300));
  gpu.memory_gbytes_s = 1000;
  c.gpus = {gpu};
  c.datacenters = {{"here", ""}};
  const troupe::link intra{"pcie4", 256, 1}, inter{"eth100", 100, 20};
  for (int n = 0; n < 4; ++n) c.nodes.push_back({"n" + std::to_string(n), 0, 0, 4, intra, inter});
  auto& job = x.job;
  job.name = "random";
  auto& m = job.model;
  m.name = "m";
  m.hidden = 1024u << r.below(2);
  m.layers = 4 + static_cast<std::uint32_t>(r.below(20));
  m.heads = 16;
  m.sequence = 1024;
  m.vocabulary = 50257;
  const auto stages = 1 + static_cast<std::uint32_t>(r.below(4));
  job.pipeline.stages = stages;
  job.pipeline.data_parallel = 1u << r.below(2);
  job.pipeline.recompute = r.below(2) == 0;
  job.global_batch = job.pipeline.data_parallel << (2 + r.below(3));
  job.iterations = 1;
  job.train.emplace();
  job.train->device = "sim";
  job.train->schedule = "megatron";
  job.pipeline.cut.assign(stages, 1);
  for (auto i = stages; i < 2 * m.layers; ++i) ++job.pipeline.cut[r.below(stages)];
  return x;
}

}  // namespace

TEST_CASE("an estimate of a plan is what its trainer plans with, in 200 random cases") {
  random_source r{11};
  for (int i = 0; i < 200; ++i) {
    const auto x = draw(r);
    INFO("case " << i);
    const auto placed = planners::place_pipelines(*x.on, planners::idle_index{*x.on}, x.job, true);
    REQUIRE(placed);
    const auto estimate =
        planners::evaluate(*x.on, x.job, placed->how, placed->where, planners::fidelity::simulated);
    REQUIRE(estimate);
    training_simulation_options o;
    o.cluster = x.on;
    o.job = x.job;
    const auto run = simulate_training(std::move(o));
    REQUIRE(run);
    CHECK(run->report.planned_s == Approx(estimate->iteration_s).epsilon(1e-9));
  }
}
