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

namespace {

/// Four nodes of one GPU each in one datacenter.
std::shared_ptr<cluster> four_nodes() {
  auto c = harness::small_cluster();
  c->datacenters.resize(1);
  c->wan.clear();
  const auto one = c->nodes.front();
  c->nodes.clear();
  for (const char* name : {"n-0", "n-1", "n-2", "n-3"}) {
    c->nodes.push_back(one);
    c->nodes.back().name = name;
    c->nodes.back().gpus = 1;
  }
  return c;
}

struct lossy_run {
  job_status job;
  training_report report;
  std::string wrong;
  std::vector<std::uint32_t> updates;  // by iteration: of all stages
};

/// Two stages in two pipelines, without a spare. `crashes`: of its nodes, for good; `cuts`: of
/// nodes that come back.
lossy_run run_with(std::vector<timed_crash> crashes, std::uint64_t iterations,
                   const char* on_loss = "heal", std::vector<timed_partition> cuts = {}) {
  auto job = harness::small_job("job", iterations, 8);
  job.train.emplace();
  job.train->on_loss = on_loss;
  job.pipeline.stages = 2;
  job.pipeline.data_parallel = 2;
  job.pipeline.microbatches = 4;
  actors::virtual_cluster_options o;
  o.cluster = four_nodes();
  o.policy = planners::make_policy("fcfs");
  o.faults.crashes = std::move(crashes);
  o.faults.partitions = std::move(cuts);
  lossy_run run;
  weights_oracle weights;
  run.updates.resize(iterations + 1);
  o.on_weights = [&](const stage_setup& s, std::uint64_t iteration, std::uint64_t digest) {
    weights.on_weights(&job, s, iteration, digest);
    ++run.updates[iteration];
  };
  actors::virtual_cluster v{o};
  v.submit({{0, job}});
  const auto status = [&] {
    const auto a = v.ask(query_jobs{1, 1});
    REQUIRE(a.reply);
    return std::get<query_reply>(a.reply->first).jobs.at(0);
  };
  v.world().run_until([&] { return !v.accepted().empty(); }, 100.0);
  for (int i = 0; i < 200 && !is_final(run.job.state); ++i) {
    const double until_s = v.world().now_s() + 5;
    v.world().run_until(until_s);
    run.job = status();
  }
  const auto a = v.ask(query_training{2, 1});
  REQUIRE(a.reply);
  run.report = std::get<training_reply>(a.reply->first).report;
  run.wrong = weights.invalid();
  return run;
}

/// It goes on in its one attempt, with the weights of an undisturbed one; no stage updates twice.
void check_healed_once(const lossy_run& run, std::uint64_t iterations) {
  INFO(run.job.detail);
  CHECK(run.wrong.empty());
  CHECK(run.job.state == job_state::finished);
  CHECK(run.job.progress.attempts == 1);
  REQUIRE(run.report.iterations.size() == iterations);
  for (std::uint64_t i = 1; i <= iterations; ++i) {
    CHECK(run.report.iterations[i - 1].iteration == i);
    CHECK(run.updates[i] <= 4);
  }
  REQUIRE(run.report.heals);
  CHECK(run.report.heals->count == 1);
}

/// When a training is this far in its eleventh iteration.
double moment_s(const training_report& undisturbed, double part) {
  const auto& all = undisturbed.iterations;
  const double begin_s = all.front().begin_s;
  return begin_s + (10 + part) * (all.back().end_s - begin_s) / static_cast<double>(all.size());
}

}  // namespace

TEST_CASE("a training that loses a node goes on with what is left, and has the same weights") {
  constexpr std::uint64_t iterations = 30;
  const auto undisturbed = run_with({}, iterations);
  REQUIRE(undisturbed.job.state == job_state::finished);
  REQUIRE(undisturbed.report.iterations.size() == iterations);
  CHECK_FALSE(undisturbed.report.heals);
  for (const char* node : {"n-1", "n-2", "n-3"})
    for (int k = 0; k < 12; ++k) {
      const double at_s = moment_s(undisturbed.report, k / 12.0);
      CAPTURE(node, k, at_s);
      const auto run = run_with({{node, at_s, 1e6}}, iterations);
      check_healed_once(run, iterations);
      CHECK(run.report.heals->lost == 1);
    }
}

TEST_CASE("a node that is cut off and comes back gets its stages back, with the same weights") {
  constexpr std::uint64_t iterations = 150;
  const auto undisturbed = run_with({}, iterations);
  REQUIRE(undisturbed.report.iterations.size() == iterations);
  for (const char* node : {"n-1", "n-2", "n-3"})
    for (int k = 0; k < 50; ++k) {
      // Also while a sum of a tied embedding is on its way, whose update others have done.
      const double at_s = moment_s(undisturbed.report, k / 50.0);
      CAPTURE(node, k, at_s);
      const auto run = run_with({}, iterations, "heal", {{{node}, {}, at_s, at_s + 3.5}});
      check_healed_once(run, iterations);
      CHECK(run.updates[iterations] == 4);  // the device that is back updates like the others
      CHECK(run.report.heals->joined == 1u);
    }
}

TEST_CASE("a training that may not heal starts again from its checkpoint when it loses a node") {
  const auto run = run_with({{"n-2", 4, 40}}, 100, "restart");
  INFO(run.job.detail);
  CHECK(run.job.state == job_state::finished);
  CHECK(run.job.progress.attempts == 2);
  CHECK_FALSE(run.report.heals);
}

TEST_CASE("a training whose stage has no peer left starts again") {
  const auto run = run_with({{"n-1", 4, 60}, {"n-2", 4, 60}, {"n-3", 4, 60}}, 100);
  INFO(run.job.detail);
  CHECK(run.job.state == job_state::finished);
  CHECK(run.job.progress.attempts == 2);
}
