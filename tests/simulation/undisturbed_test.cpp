#include "simulation/undisturbed.hpp"

#include <catch2/catch.hpp>

#include "actors/worlds/virtual_cluster.hpp"
#include "harness/small_cluster.hpp"
#include "planners/policy/policy.hpp"

using namespace troupe;
using namespace troupe::simulation;

TEST_CASE(
    "without faults the digests of weights are the oracle's, for any number of stages and "
    "pipelines") {
  const std::uint32_t stages = GENERATE(1, 2, 3), pipelines = GENERATE(1, 2);
  const bool tied = GENERATE(true, false);
  CAPTURE(stages, pipelines, tied);
  auto job = harness::small_job("job", 5, 8);
  job.model.tied_head = tied;
  job.train.emplace();
  job.pipeline.stages = stages;
  job.pipeline.data_parallel = pipelines;
  job.pipeline.microbatches = 4;
  actors::virtual_cluster_options o;
  o.cluster = harness::small_cluster();
  o.policy = planners::make_policy("fcfs");
  weights_oracle weights;
  std::uint64_t completed = 0;
  o.on_weights = [&](const stage_setup& s, std::uint64_t iteration, std::uint64_t digest) {
    weights.on_weights(&job, s, iteration, digest);
    completed = std::max(completed, iteration);
  };
  actors::virtual_cluster v{o};
  v.submit({{0, job}});
  v.world().run_until([&] { return weights.compared() >= 5ULL * stages * pipelines; }, 10'000.0);
  CHECK(weights.invalid().empty());
  CHECK(completed == 5);
  CHECK(weights.compared() == 5ULL * stages * pipelines);
}

TEST_CASE("the oracle says which weights differ first") {
  stage_setup s;
  s.name = {7, 0, 0};
  s.microbatches = 2;
  weights_oracle weights;
  undisturbed run{s, {2}};
  weights.on_weights(nullptr, s, 1, run.digest(0, 0, 1));
  CHECK(weights.invalid().empty());
  weights.on_weights(nullptr, s, 2, run.digest(0, 0, 1));
  CHECK(weights.invalid() ==
        "stage 0 of pipeline 0 of lease 7 has other weights after iteration 2 than an undisturbed "
        "training");
}
