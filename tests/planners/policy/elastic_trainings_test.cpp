#include <catch2/catch.hpp>

#include <algorithm>
#include <set>

#include "planners/policy/adaptive_plan.hpp"
#include "planners/policy/progress.hpp"
#include "planners/sample.hpp"
#include "planners/scene.hpp"
#include "planners/troupe/configurations.hpp"
#include "planners/troupe/pipelined_plans.hpp"

// Trainings under the policy troupe (docs/planners/troupe.md).

using namespace troupe;
using namespace troupe::planners;
using scene_of_policies::played_policy;
using scene_of_policies::settling_s;

namespace {

constexpr double shortest_settling_s =
    troupe_options{}.settle_starts * scene_of_policies::restart_s;

job_spec training_of(std::uint64_t iterations, std::uint32_t batch = 64) {
  auto spec = sample::job(sample::gpt2_350m, batch);
  spec.iterations = iterations;
  spec.train = training{};
  spec.train->device = "cpu";
  spec.train->checkpoint = "/saved";
  return spec;
}

job_spec fixed_training(std::uint64_t iterations, std::uint32_t pipelines) {
  auto spec = training_of(iterations);
  spec.pipeline.stages = 2;
  spec.pipeline.data_parallel = pipelines;
  return spec;
}

cluster eight_gpus() {
  cluster c;
  sample::add_nodes(c, sample::a100_80, 1, 8);
  return c;
}

/// It has run for so long, as expected.
void has_run(job_view& j, double now_s, double seconds) {
  j.started_s = now_s - seconds;
  j.iteration_s = j.spec->global_batch / j.how.samples_per_s;
}

}  // namespace

TEST_CASE("a training with an open shape and checkpoints is elastic under troupe") {
  CHECK(is_elastic(training_of(10)));
  auto unsaved = training_of(10);
  unsaved.train->checkpoint.clear();
  CHECK_FALSE(is_elastic(unsaved));
  unsaved.train->device = "sim";
  CHECK(is_elastic(unsaved));
  CHECK_FALSE(is_elastic(fixed_training(10, 1)));
  for (auto wish :
       {&pipeline_wish::stages, &pipeline_wish::data_parallel, &pipeline_wish::microbatches,
        &pipeline_wish::rows, &pipeline_wish::tensor_parallel,
        &pipeline_wish::stages_per_datacenter, &pipeline_wish::virtual_stages}) {
    auto wishes = training_of(10);
    wishes.pipeline.*wish = 1;
    CHECK_FALSE(is_elastic(wishes));
  }
  CHECK_FALSE(is_elastic(sample::job(sample::gpt2_350m, 64)));
}

TEST_CASE("all configurations of an elastic training have micro-batches of the same size") {
  played_policy x{eight_gpus(), "troupe"};
  const auto& j = x.s.add(1, training_of(1000));
  REQUIRE(j.plans->size() >= 3);
  std::set<std::uint32_t> rows, gpus;
  for (const auto& p : *j.plans) {
    rows.insert(p.rows);
    gpus.insert(p.gpus());
    CHECK(p.rows * p.microbatches * p.data_parallel == 64);
  }
  CHECK(rows.size() == 1);
  CHECK(gpus.contains(8));
  CHECK(gpus.contains(1));
}

TEST_CASE(
    "only a plan whose stages are all of one GPU type is a configuration of that type's pool") {
  cluster c = eight_gpus();
  sample::add_nodes(c, sample::rtx6000, 1, 8);
  const auto pools = pools_of(c, idle_index{c});
  REQUIRE(pools.size() == 2);
  const auto job = sample::job(sample::gpt2_350m, 64);
  auto how = *even_plan(c, pools[0], job, {1, 2, 1});
  const auto found = [&] { return fastest_pipelines(c, pools, 0, 2, job, {how}, 0); };
  CHECK(found());
  how.stages[1].gpu = pools[1].gpu;
  CHECK_FALSE(found());
  how.stages[1].gpu.reset();
  CHECK_FALSE(found());
}

TEST_CASE("a running training shrinks for a shorter one, and grows when that one has ended") {
  played_policy x{eight_gpus(), "troupe"};
  x.s.add(1, training_of(1'000'000));
  x.settle();
  REQUIRE(x.s.running.at(1).how.gpus() == 8);
  x.s.now_s += settling_s;
  has_run(x.s.running.at(1), x.s.now_s, settling_s);
  for (job_id id = 2; id < 6; ++id) x.s.add(id, training_of(10'000));
  x.settle();
  CHECK(x.s.running.contains(2));
  const bool made_room = !x.s.running.contains(1) || x.s.running.at(1).how.gpus() < 8;
  CHECK(made_room);
  for (job_id id = 2; id < 6; ++id) {
    x.s.now_s += settling_s;
    for (auto& [other, j] : x.s.running) has_run(j, x.s.now_s, settling_s);
    x.settle();
    REQUIRE(x.s.running.contains(id));
    x.end(id);
  }
  x.settle();
  CHECK(x.s.running.at(1).how.gpus() == 8);
}

TEST_CASE("a training of fixed shape takes GPUs from a longer job, not from a shorter one") {
  for (const bool longer : {true, false}) {
    CAPTURE(longer);
    played_policy x{eight_gpus(), "troupe"};
    x.s.add(1, training_of(longer ? 1'000'000 : 1'000));
    x.settle();
    REQUIRE(x.s.running.at(1).how.gpus() == 8);
    x.s.now_s += settling_s;
    has_run(x.s.running.at(1), x.s.now_s, settling_s);
    x.s.add(2, fixed_training(100'000, 2));
    x.settle();
    CHECK(x.s.running.contains(2) == longer);
    if (longer) CHECK(x.s.running.at(2).how.gpus() == 4);
    // The GPUs that are left are used.
    CHECK(x.s.running.at(1).how.gpus() == (longer ? 4 : 8));
  }
}

TEST_CASE("an overdue training of fixed shape takes GPUs from a shorter job that is not overdue") {
  for (const bool overdue : {true, false}) {
    CAPTURE(overdue);
    played_policy x{eight_gpus(), "troupe"};
    x.s.add(1, training_of(1'000'000));
    x.settle();
    x.s.now_s += settling_s;
    has_run(x.s.running.at(1), x.s.now_s, settling_s);
    x.s.add(2, fixed_training(100'000'000, 2));
    if (overdue) x.s.waiting.at(2).submitted_s = -1e12;
    x.settle();
    CHECK(x.s.running.contains(2) == overdue);
  }
}

TEST_CASE("a training of fixed shape does not stop a job that has just started") {
  played_policy x{eight_gpus(), "troupe"};
  x.s.now_s = shortest_settling_s * (troupe_options{}.settle_step - 1);  // settled at a step
  x.s.add(1, training_of(1'000'000));
  x.settle();
  x.s.now_s += shortest_settling_s - 1;
  has_run(x.s.running.at(1), x.s.now_s, shortest_settling_s - 1);
  x.s.add(2, fixed_training(100, 1));
  CHECK(x.decide().empty());
  CHECK(x.by->decide_again_s(x.s.view()) == 1);
  x.s.now_s += 2;
  CHECK_FALSE(x.decide().empty());
  CHECK(x.by->decide_again_s(x.s.view()) == 0);
}

TEST_CASE("a training spans several datacenters when no single pool is nearly as fast") {
  cluster c;
  for (int dc = 0; dc < 4; ++dc) {
    sample::add_nodes(c, sample::a100_80, 1, 8);
    c.nodes.back().datacenter = std::uint32_t(dc);
  }
  c.datacenters.clear();
  for (int dc = 0; dc < 4; ++dc) c.datacenters.push_back({"dc" + std::to_string(dc), ""});
  for (std::uint32_t a = 0; a < 4; ++a)
    for (std::uint32_t b = a + 1; b < 4; ++b) {
      wan_link w;
      w.a = a, w.b = b;
      w.rtt_ms = 10;
      w.node_gbps = 100;
      c.wan.push_back(w);
    }
  played_policy x{c, "troupe"};
  x.s.add(1, training_of(1'000, 512));
  x.settle();
  std::set<std::uint32_t> used;
  for (const auto& share : x.s.running.at(1).where) used.insert(c.nodes[share.node].datacenter);
  CHECK(used.size() > 1);
}

TEST_CASE("a job's remaining work follows its last report and its measured slowdown") {
  scene_of_policies::scene s{eight_gpus()};
  auto& j = s.add(1, training_of(1000, 64));
  j.progress.iterations_done = 100;
  CHECK(iterations_left(s.view(), j) == 900);
  CHECK(samples_left(s.view(), j) == 900 * 64);
  j.where = {{0, 8}};
  j.iteration_s = 2;
  j.started_s = s.now_s - 50;  // 30 of them were its start
  CHECK(iterations_left(s.view(), j) == 890);
  j.reported = reported_progress{200, s.now_s - 40, 4};
  CHECK(iterations_left(s.view(), j) == 790);
  CHECK(measured_slowdown(j) == 2);
  CHECK(samples_left(s.view(), j) == 790 * 64 * 2);
  j.reported->iteration = 1000;
  CHECK(iterations_left(s.view(), j) == 1);
}

TEST_CASE("a training leaves the type whose speed was a guess when it turns out to be slower") {
  const auto left = [](bool guess) {
    auto fast = sample::a100_80, slow = sample::a100_40;
    fast.source = guess ? "efficiency: assumed" : "efficiency: measured";
    slow.efficiency = 0.8 * fast.efficiency;
    fast.kernel_us = slow.kernel_us = 50;
    cluster c;
    sample::add_nodes(c, fast, 1, 1);
    sample::add_nodes(c, slow, 1, 1);
    played_policy x{c, "troupe"};
    auto spec = training_of(1'000'000, 8);
    spec.train->device = "sim";
    x.s.add(1, spec);
    x.settle();
    auto& j = x.s.running.at(1);
    REQUIRE(c.gpu_of(j.where.front().node).name == fast.name);
    x.s.now_s += settling_s;
    has_run(j, x.s.now_s, settling_s);
    x.settle();
    CHECK(c.gpu_of(x.s.running.at(1).where.front().node).name == fast.name);
    auto& now = x.s.running.at(1);
    now.reported = reported_progress{100, x.s.now_s, 3 * now.iteration_s};
    x.settle();
    return c.gpu_of(x.s.running.at(1).where.front().node).name != fast.name;
  };
  CHECK(left(true));
  CHECK_FALSE(left(false));  // it is the job that is slow, wherever it is
}

TEST_CASE("under a baseline a training across GPU types starts, and runs to its end there") {
  for (const auto name : {"frenzy", "opportunistic", "fcfs", "sia", "gandiva", "gavel",
                          "gavel-fair", "elasticflow", "elasticflow-ls"}) {
    CAPTURE(name);
    cluster c;
    sample::add_nodes(c, sample::a100_80, 1, 1);
    sample::add_nodes(c, sample::rtx6000, 1, 1);
    played_policy x{c, name};
    x.s.add(1, fixed_training(1'000, 1));
    x.settle();
    REQUIRE(x.s.running.contains(1));
    CHECK(x.gpus(1) == 2);
    x.s.now_s += 600;
    has_run(x.s.running.at(1), x.s.now_s, 600);
    x.s.add(2, fixed_training(10, 1));
    CHECK(x.decide().empty());
    CHECK(scene_of_policies::why_of(*x.by, x.s, 2).code == reason::kind::insufficient);
  }
}
