#include <signal.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "gpu/model/safetensors.hpp"
#include "harness/sanitized.hpp"
#include "harness/scratch.hpp"
#include "processes/trainings.hpp"

// Training in real processes over an emulated WAN, with killed and stopped processes.

using namespace troupe;
using namespace troupe::test;

TEST_CASE(
    "after SIGKILL of a stage's process, training resumes from the checkpoint with the same "
    "losses") {
  fixture f{"stage-killed", "clusters/three-sites.yaml"};
  REQUIRE(f.wait_for_nodes());
  auto job = two_stages(f, 24);
  job.train->checkpoint.clear();
  const auto undisturbed = trained(f, job);

  job = two_stages(f, 24);
  const auto id = f.submit(job);
  REQUIRE(f.wait_until([&](const auto&) { return iterations(f, id) >= 7; }));
  const auto jobs = f.jobs();
  const auto victim = jobs.nodes[jobs.jobs.back().where.back().node].name;
  f.cluster->kill(victim);  // and never comes back: another node takes its place
  REQUIRE(f.wait_until(all_final));
  const auto after = how(f, id);
  CHECK(f.jobs().jobs.back().state == job_state::finished);
  CHECK(f.jobs().jobs.back().progress.attempts == 2);
  check_same_curve(undisturbed, after);
  CHECK(std::any_of(after.events.begin(), after.events.end(), [](const auto& n) {
    return n.find("resumed after iteration") != std::string::npos;
  }));
}

TEST_CASE(
    "a gateway that is killed and restarted in mid-training costs no lease and no iteration") {
  fixture f{"gateway-restarted", "clusters/three-sites.yaml"};
  REQUIRE(f.wait_for_nodes());
  auto job = two_stages(f, 40);
  job.train->checkpoint.clear();
  const auto undisturbed = trained(f, job);
  REQUIRE(undisturbed.wan_bytes > 0);

  const auto id = f.submit(job);
  for (const std::uint64_t after : {5, 12, 20}) {
    REQUIRE(f.wait_until([&](const auto&) { return iterations(f, id) >= after; }));
    const auto jobs = f.jobs();
    REQUIRE(jobs.jobs.back().state == job_state::running);
    const auto stage = jobs.nodes[jobs.jobs.back().where.back().node].name;
    REQUIRE(f.cluster->restart(stage.substr(0, stage.find('-')) + "/gateway"));
  }
  REQUIRE(f.wait_until(all_final));
  INFO(f.jobs().jobs.back().detail);
  CHECK(f.jobs().jobs.back().state == job_state::finished);
  CHECK(f.jobs().jobs.back().progress.attempts == 1);
  const auto after = how(f, id);
  check_same_curve(undisturbed, after);
  // Iterations are not timed: a gateway takes seconds to start on a busy machine. When a stage asks
  // again for a lost tensor is checked in virtual time (stage_waits_test).
}

TEST_CASE(
    "a training that diverges fails with its iteration, is not repeated, and saves nothing bad") {
  fixture f{"diverging", "clusters/three-sites.yaml"};
  REQUIRE(f.wait_for_nodes());
  auto job = two_stages(f, 200);
  job.train->learning_rate = 100;
  job.train->checkpoint_every = 1;
  const auto id = f.submit(job);
  REQUIRE(f.wait_until(all_final));
  const auto j = f.job(id);
  INFO(j.detail);
  CHECK(j.state == job_state::failed);
  CHECK(j.progress.attempts == 1);
  CHECK(j.detail.find("iteration ") != std::string::npos);
  CHECK(j.detail.find("finite number") != std::string::npos);
  for (const auto& i : how(f, id).iterations) {
    CHECK(std::isfinite(i.loss));
    CHECK(std::isfinite(i.gradient_norm));
  }
  for (const auto& entry : fs::recursive_directory_iterator{job.train->checkpoint}) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto saved = gpu::safetensors::open(entry.path());
    REQUIRE(saved);
    for (const auto& [name, tensor] : saved->tensors()) {
      std::vector<float> values((tensor.end - tensor.begin) / sizeof(float));
      CHECK(saved->read(tensor, values));
    }
  }
}

TEST_CASE("a suspended training saves a checkpoint and later resumes with the same losses") {
  fixture f{"suspended", "clusters/three-sites.yaml"};
  REQUIRE(f.wait_for_nodes());
  auto job = two_stages(f, 24);
  job.train->checkpoint.clear();
  const auto undisturbed = trained(f, job);

  job = two_stages(f, 24);
  job.train->checkpoint_every = 1000;  // it saves because it is to stop, or not at all
  const auto id = f.submit(job);
  REQUIRE(f.wait_until([&](const auto&) { return iterations(f, id) >= 7; }));
  const auto set = [&](bool suspended) {
    const auto reply = f.client->ask(suspend_job{0, id, suspended}, long_s).reply;
    REQUIRE(reply);
    CHECK(std::get<suspend_reply>(reply->first).done);
  };
  set(true);
  REQUIRE(
      f.wait_until([](const query_reply& r) { return r.jobs.back().state == job_state::waiting; }));
  const auto stopped = f.jobs().jobs.back();
  CHECK(stopped.waiting_reason == "suspended");
  CHECK(stopped.progress.iterations_done >= 7);
  CHECK(stopped.progress.iterations_done == iterations(f, id));
  set(false);
  REQUIRE(f.wait_until(all_final));
  CHECK(f.jobs().jobs.back().state == job_state::finished);
  CHECK(f.jobs().jobs.back().progress.attempts == 2);
  check_same_curve(undisturbed, how(f, id));
}

TEST_CASE("after SIGSTOP of a trainer's process, its lease may no longer write checkpoints") {
  fixture f{"trainer-stopped", "clusters/three-sites.yaml"};
  REQUIRE(f.wait_for_nodes());
  auto job = two_stages(f, 40);
  job.train->checkpoint.clear();
  const auto undisturbed = trained(f, job);

  job = two_stages(f, 40);
  const auto id = f.submit(job);
  REQUIRE(f.wait_until([&](const auto&) { return iterations(f, id) >= 7; }));
  const auto fence = [&] {
    lease_id newest = 0;
    std::ifstream{f.state / "checkpoint" / "fence"} >> newest;
    return newest;
  };
  const auto stopped_lease = fence();
  const auto jobs = f.jobs();
  const auto victim =
      f.cluster->id(jobs.nodes[jobs.jobs.back().where.front().node].name);  // the trainer is there
  ::kill(victim, SIGSTOP);
  const bool again = f.wait_until([](const query_reply& r) {
    return r.jobs.back().progress.attempts == 2 && r.jobs.back().state == job_state::running;
  });
  ::kill(victim, SIGCONT);
  REQUIRE(again);
  REQUIRE(f.wait_until(all_final));
  CHECK(f.jobs().jobs.back().state == job_state::finished);
  check_same_curve(undisturbed, how(f, id));
  CHECK(stopped_lease != 0);
  CHECK(fence() == stopped_lease + 1);
}

TEST_CASE("a stage whose set-up takes longer than a lease costs no lease") {
  if (harness::sanitized) {
    WARN("skipped: a sanitizer's library wants to be the first that is loaded");
    return;
  }
  const scratch vocabulary;  // reading it takes as long as the test wants
  vocabulary.write("vocab.json", "no vocabulary");
  vocabulary.write("vocab.held", "");
  ::setenv("LD_PRELOAD", HELD_READS_LIBRARY, 1);
  ::setenv("HELD_READS", vocabulary.path("vocab").c_str(), 1);
  fixture f{"slow-start"};
  ::unsetenv("LD_PRELOAD");
  ::unsetenv("HELD_READS");
  REQUIRE(f.wait_for_nodes());
  auto job = two_stages(f, 4);
  job.pipeline.stages = 1;
  job.train->checkpoint.clear();
  job.train->vocabulary = vocabulary.path();
  const auto id = f.submit(job);
  REQUIRE(f.wait_until([&](const query_reply& r) {
    return r.jobs.back().job == id && r.jobs.back().state == job_state::running;
  }));
  const runtime::stopwatch waited;
  while (waited.s() < 12) {  // leases of 2 s
    const auto now = f.jobs();
    for (const auto& n : now.nodes) {
      INFO(n.name << " after " << waited.s() << " s");
      REQUIRE(n.present);
    }
    REQUIRE(now.jobs.back().state == job_state::running);
    REQUIRE(now.jobs.back().progress.attempts == 1);
    runtime::pause(0.2);
  }
  const auto events = how(f, id).events;
  CHECK(std::any_of(events.begin(), events.end(), [](const auto& n) {
    return n.find("is still being set up, after") != std::string::npos;
  }));
  fs::remove(vocabulary.path("vocab.held"));
  REQUIRE(f.wait_until(all_final));
  INFO(f.jobs().jobs.back().detail);
  CHECK(f.jobs().jobs.back().state == job_state::failed);
  CHECK(f.jobs().jobs.back().detail.find("is not a JSON object") != std::string::npos);
  CHECK(f.jobs().jobs.back().progress.attempts == 1);
}

TEST_CASE("after SIGKILL of the controller the whole loss curve is still there and continues") {
  fixture f{"curve-kept"};
  REQUIRE(f.wait_for_nodes());
  const auto job = two_stages(f, 60);
  const auto id = f.submit(job);
  REQUIRE(f.wait_until([&](const auto&) { return iterations(f, id) >= 7; }));
  const auto before = how(f, id);
  f.cluster->kill("controller");
  REQUIRE(f.cluster->restart("controller"));
  REQUIRE(f.wait_until(all_final));
  const auto after = how(f, id);
  REQUIRE(after.iterations.size() == 60);
  CHECK(after.saved == 60);
  CHECK(f.jobs().jobs.back().progress.attempts == 1);
  for (std::size_t i = 0; i < 60; ++i) CHECK(after.iterations[i].iteration == i + 1);
  for (std::size_t i = 0; i < before.iterations.size(); ++i)
    CHECK(after.iterations[i] == before.iterations[i]);
}

TEST_CASE(
    "a checkpoint of two stages continues with three stages and with one, with the same losses") {
  fixture f{"restaged", "clusters/three-sites.yaml"};
  REQUIRE(f.wait_for_nodes());
  auto job = two_stages(f, 15);
  job.train->checkpoint.clear();
  const auto undisturbed = trained(f, job);
  trained(f, two_stages(f, 5));
  job = two_stages(f, 10);
  job.pipeline.stages = 3;
  const auto three = trained(f, job);
  REQUIRE(three.iterations.size() == 5);
  job = two_stages(f, 15);
  job.pipeline.stages = 1;
  const auto one = trained(f, job);
  REQUIRE(one.iterations.size() == 5);
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(three.iterations[i].loss == undisturbed.iterations[5 + i].loss);
    CHECK(three.iterations[i].gradient_norm == undisturbed.iterations[5 + i].gradient_norm);
    CHECK(one.iterations[i].loss == undisturbed.iterations[10 + i].loss);
    CHECK(one.iterations[i].gradient_norm == undisturbed.iterations[10 + i].gradient_norm);
  }
}

TEST_CASE("two pipelines of three stages have the losses of one stage under every schedule") {
  fixture f{"schedules", "clusters/three-sites.yaml"};
  REQUIRE(f.wait_for_nodes());
  auto job = two_stages(f, 4);
  job.train->checkpoint.clear();
  job.pipeline.stages = 1;
  const auto one = trained(f, job);
  job.pipeline.data_parallel = 2;
  job.microbatches = job.pipeline.microbatches = 2;
  const auto two = trained(f, job);
  job.pipeline.stages = 3;
  for (const auto* schedule : {"gpipe", "megatron", "varuna", "atlas", "best"}) {
    INFO(schedule);
    job.train->schedule = schedule;
    const auto six = trained(f, job);
    check_same_curve(two, six);
    for (std::size_t i = 0; i < one.iterations.size(); ++i) {
      // Two pipelines' sums are sums of sums: the same but for rounding.
      CHECK(six.iterations[i].loss == Approx(one.iterations[i].loss).epsilon(1e-5));
      CHECK(six.iterations[i].gradient_norm ==
            Approx(one.iterations[i].gradient_norm).epsilon(1e-4));
    }
  }
}

TEST_CASE("stages that never recompute have the same losses, and spend no time on it") {
  fixture f{"keeping"};
  REQUIRE(f.wait_for_nodes());
  auto job = two_stages(f, 6);
  job.train->checkpoint.clear();
  const auto recomputing = trained(f, job);
  CHECK(recomputing.measured.at(0).recompute_s > 0);
  job.pipeline.recompute = false;
  for (const auto* schedule : {"gpipe", "atlas"}) {
    INFO(schedule);
    job.train->schedule = schedule;
    const auto keeping = trained(f, job);
    CHECK(keeping.stages == 2);
    CHECK(keeping.measured.at(0).recompute_s == 0);
    check_same_curve(recomputing, keeping);
  }
}

TEST_CASE(
    "stages shared by two threads have the losses of one thread, and can read its checkpoints") {
  fixture f{"shared"};
  REQUIRE(f.wait_for_nodes());
  auto job = two_stages(f, 10);
  job.pipeline.stages_per_datacenter = 0;
  job.pipeline.data_parallel = 2;
  job.microbatches = job.pipeline.microbatches = 2;
  job.train->checkpoint.clear();
  const auto undisturbed = trained(f, job);
  job.train->checkpoint = (f.state / "checkpoint").string();
  job.iterations = 5;
  job.pipeline.tensor_parallel = 2;
  const auto shared = trained(f, job);
  CHECK(shared.tensor_parallel == 2);
  REQUIRE(shared.iterations.size() == 5);
  job.iterations = 10;
  job.pipeline.tensor_parallel = 1;
  const auto after = trained(f, job);
  REQUIRE(after.iterations.size() == 5);
  for (std::size_t i = 0; i < 10; ++i) {
    const auto& now = i < 5 ? shared.iterations[i] : after.iterations[i - 5];
    CHECK(now.iteration == i + 1);
    CHECK(now.loss == Approx(undisturbed.iterations[i].loss).epsilon(1e-5));
    CHECK(now.gradient_norm == Approx(undisturbed.iterations[i].gradient_norm).epsilon(1e-4));
  }
}

TEST_CASE("uneven stages on nodes of unequal speed have the losses of one stage, bit for bit") {
  fixture f{"uneven", "clusters/uneven.yaml"};
  REQUIRE(f.wait_for_nodes());
  auto job = formats::load_job(shipped("jobs/train-uneven.yaml").string());
  REQUIRE(job);
  job->model.hidden = 64;  // soon done
  job->model.sequence = 64;
  const auto uneven = trained(f, *job);
  const auto status = f.jobs().jobs.back();
  REQUIRE(status.how.stages.size() == 3);
  CHECK(status.how.stages[0].count == 14);
  CHECK(status.how.stages[1].count == 6);
  CHECK(status.how.stages[2].count == 4);
  job->pipeline.stages = 1;
  job->pipeline.cut.clear();
  check_same_curve(trained(f, *job), uneven);
}
