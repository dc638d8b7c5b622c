#include "actors/control/trainings.hpp"

// Jobs that are suspended and resumed.

using namespace troupe;
using namespace troupe::test;

namespace {

suspend_reply set(virtual_cluster& v, job_id id, bool suspended) {
  return asked<suspend_reply>(v, suspend_job{0, id, suspended});
}

}  // namespace

TEST_CASE("a suspended training saves a checkpoint and loses no iterations") {
  virtual_cluster v{training_options()};
  v.submit({{1, long_training()}});
  v.world().run_until(30.0);
  REQUIRE(seen(v).state == job_state::running);
  REQUIRE(set(v, 1, true).done);
  CHECK(until(v, job_state::waiting) < 20);
  const auto stopped = seen(v);
  CHECK(stopped.waiting_reason == "suspended");
  CHECK(stopped.detail.starts_with("suspended by"));
  CHECK(stopped.progress.iterations_done > 0);
  CHECK(stopped.progress.iterations_done < 2000);
  CHECK(newest_report(v).iterations.back().iteration == stopped.progress.iterations_done);
  v.world().run_until(v.world().now_s() + 500);
  CHECK(seen(v).progress.attempts == 1);
  REQUIRE(set(v, 1, false).done);
  CHECK(seen(v).detail.empty());
  until(v, job_state::running);
  CHECK(seen(v).detail.empty());
  run_to_end(v);
  CHECK(seen(v).progress.attempts == 2);
  check_iterations(v, 2000);
}

TEST_CASE("a training resumed before it has stopped is not described as suspended") {
  virtual_cluster v{training_options()};
  auto job = long_training();
  job.model = harness::gpt2(24, 1024, 16);
  job.global_batch = 256;  // an iteration takes a while
  job.pipeline.microbatches = 64;
  job.iterations = 60;
  v.submit({{1, job}});
  v.world().run_until(60.0);
  REQUIRE(set(v, 1, true).done);
  const auto summary = [&] { return asked<explanation>(v, explain_job{0, 1}).summary; };
  REQUIRE(seen(v).state == job_state::stopping);
  CHECK(summary().find("suspended by") != std::string::npos);
  REQUIRE(set(v, 1, false).done);
  CHECK(summary().find("suspended") == std::string::npos);
  while (seen(v).progress.attempts < 2) {
    CHECK(seen(v).detail.empty());
    v.world().run_until(v.world().now_s() + 1);
    REQUIRE(v.world().now_s() < 1000);
  }
  run_to_end(v);
}

TEST_CASE("a training without time to save continues from its last checkpoint") {
  auto o = training_options();
  auto c = std::make_shared<cluster>(*o.cluster);
  c->settings.preempt_grace_s = 0.001;
  o.cluster = c;
  virtual_cluster v{o};
  auto job = long_training();
  job.model = harness::gpt2(24, 1024, 16);
  job.global_batch = 2048;  // an iteration takes many seconds
  job.pipeline.microbatches = 512;
  job.train->checkpoint_every = 7;
  v.submit({{1, job}});
  v.world().run_until(120.0);
  INFO(seen(v).detail);
  REQUIRE(set(v, 1, true).done);
  until(v, job_state::waiting);
  const auto stopped = seen(v);
  CHECK(stopped.progress.iterations_done > 0);
  CHECK(stopped.progress.iterations_done % 7 == 0);
  CHECK(stopped.progress.iterations_done < newest_report(v).iterations.back().iteration);
  REQUIRE(set(v, 1, false).done);
  run_to_end(v);
}

TEST_CASE("a training is suspended and resumed under message loss and host crashes") {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const auto o = lossy_options(seed);
    virtual_cluster v{o};
    v.submit({{1, long_training()}});
    v.world().run_until(30.0 + 0.01 * static_cast<double>(seed));
    random_source random{seed};
    v.send(suspend_job{seed, 1, true}, 1e6, [](const answer&) {});
    const auto& c = *o.cluster;
    const auto sites = c.datacenters.size(), hosts = 1 + sites + c.nodes.size();
    if (seed % 2 == 0)
      v.world().at(v.world().now_s() + 3 * random.uniform(), [&, victim = random.below(hosts)] {
        v.world().crash(
            static_cast<address>(victim <= sites
                                     ? victim
                                     : node_address(static_cast<node_index>(victim - 1 - sites))),
            2);
      });
    INFO("seed " << seed);
    v.world().run_until(v.world().now_s() + 150);
    const auto stopped = seen(v);
    CHECK(stopped.state == job_state::waiting);
    CHECK(stopped.waiting_reason == "suspended");
    REQUIRE(set(v, 1, false).done);
    run_to_end(v);
    const auto all = newest_report(v).iterations;
    REQUIRE(all.size() == 2000);
  }
}

TEST_CASE("a suspended job is not placed, and suspended simulated work keeps its iterations") {
  virtual_cluster v{training_options()};
  v.submit({{1, harness::small_job("work", 100'000)}});
  v.world().run_until(30.0);
  REQUIRE(set(v, 1, true).done);
  v.world().run_until(40.0);
  const auto stopped = seen(v);
  CHECK(stopped.state == job_state::waiting);
  CHECK(stopped.progress.iterations_done > 0);
  v.world().crash(controller_address);
  v.world().restart(controller_address);
  v.world().run_until(100.0);
  const auto still = seen(v);
  CHECK(still.state == job_state::waiting);
  CHECK(still.waiting_reason == "suspended");
  CHECK(still.progress.iterations_done == stopped.progress.iterations_done);
  REQUIRE(set(v, 1, false).done);
  v.world().run_until(110.0);
  CHECK(seen(v).state == job_state::running);
}

TEST_CASE("a job that cannot be suspended or resumed is refused with a sentence") {
  virtual_cluster v{training_options()};
  v.submit({{1, harness::small_job("work", 3000)}});
  v.world().run_until(10.0);
  CHECK(set(v, 9, true).why.code == reason::kind::unknown);
  CHECK(set(v, 1, false).why.code == reason::kind::invalid);
  CHECK(set(v, 1, true).done);
  CHECK(set(v, 1, true).done);  // it is already
  CHECK(set(v, 1, false).done);
  run_to_end(v);
  CHECK(set(v, 1, true).why.code == reason::kind::invalid);
}
