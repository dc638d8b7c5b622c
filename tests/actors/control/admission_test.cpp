#include "messages/admission/admission.hpp"
#include "harness/facts.hpp"

#include <catch2/catch.hpp>

#include <set>

#include "actors/worlds/virtual_cluster.hpp"
#include "harness/hostile_specs.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

std::unique_ptr<virtual_cluster> admission_cluster(std::string_view policy = "frenzy") {
  virtual_cluster_options o;
  o.cluster = harness::small_cluster();
  o.policy = planners::make_policy(policy);
  return std::make_unique<virtual_cluster>(o);
}

submit_reply submitted(virtual_cluster& v, std::uint64_t request, const job_spec& job) {
  auto reply = v.ask(submit_job{request, job});
  REQUIRE(reply.reply);
  return std::get<submit_reply>(reply.reply->first);
}

explanation explained(virtual_cluster& v, job_id id) {
  auto reply = v.ask(explain_job{0, id});
  REQUIRE(reply.reply);
  return std::get<explanation>(reply.reply->first);
}

}  // namespace

TEST_CASE(
    "hostile jobs are refused with a reason and never journalled, and a valid job still runs") {
  auto v = admission_cluster();
  v->world().run_until(5.0);
  const auto all = harness::hostile_specs();
  REQUIRE(all.size() == 77);
  std::uint64_t request = 100;
  std::size_t accepted = 0;
  for (const auto& h : all) {
    INFO(h.what);
    const auto reply = submitted(*v, ++request, harness::hostile_job(h));
    const bool never_runs = reply.why.code == reason::kind::infeasible;  // accepted, and failed
    CHECK((reply.job == 0) == (h.refused || never_runs));
    CHECK_FALSE((h.refused && never_runs));
    CHECK(reply.why.text.empty() == (reply.job != 0));
    CHECK(reply.why.text.size() < 500);
    accepted += reply.job != 0 || never_runs;
  }
  const auto honest = submitted(*v, ++request, harness::small_job("honest", 1'000'000));
  REQUIRE(honest.job == accepted + 1);
  v->world().run_until(v->world().now_s() + 3);
  CHECK(explained(*v, honest.job).job.state == job_state::running);
  std::size_t journalled = 0;
  for (const auto& e : v->journal())
    if (const auto* a = std::get_if<job_accepted>(&e)) {
      ++journalled;
      CHECK(admission::admit(a->spec));
    }
  CHECK(journalled == accepted + 1);
  // A rejection is not stored: the corrected job may have the same request number.
  CHECK(submitted(*v, 101, harness::small_job("corrected")).job == accepted + 2);
}

TEST_CASE(
    "a job that the cluster can never run is refused with what it needs, under every policy") {
  for (const auto name : planners::policy_names()) {
    CAPTURE(name);
    auto v = admission_cluster(name);
    v->world().run_until(5.0);
    auto program = harness::small_job("program");
    program.program.command = {"train"};
    program.request.exact = program.assumed.model = true;
    program.request.gpus = 15;
    const auto no = submitted(*v, 1, program);
    CHECK(no.job == 0);
    CHECK(no.why.code == reason::kind::infeasible);
    CHECK(no.why.text == "needs 15 GPUs; the cluster has 14");
    const auto again = submitted(*v, 1, program);  // its answer was lost
    CHECK(again.job == 0);
    CHECK(again.why == no.why);
    auto huge = harness::small_job("simulated");
    huge.model = harness::gpt2(100, 20'480, 64);
    huge.global_batch = 1;
    CHECK(submitted(*v, 2, huge).job == 0);
    program.request.gpus = 4;
    CHECK(submitted(*v, 3, program).job != 0);
    std::size_t failed = 0;  // they are kept, and can be explained
    for (const auto& e : v->journal())
      if (const auto* ended = std::get_if<job_ended>(&e)) {
        ++failed;
        CHECK(ended->final_state == job_state::failed);
        CHECK(explained(*v, ended->job).summary == "failed: " + ended->detail);
      }
    CHECK(failed == 2);
  }
}

TEST_CASE("a job for GPUs of nodes that are absent is accepted, and says so") {
  auto v = admission_cluster("troupe");
  v->world().run_until(5.0);
  v->world().crash(node_address(1));
  v->world().run_until(30.0);
  auto program = harness::small_job("program", 1'000'000);
  program.program.command = {"train"};
  program.request.exact = program.assumed.model = true;
  program.request.gpus = 3;
  program.limits.required_gpu_type = program.request.type = "A100-40GB";
  const auto first = submitted(*v, 1, program).job;
  REQUIRE(first != 0);
  program.request.gpus = 2;
  const auto second = submitted(*v, 2, program).job;
  REQUIRE(second != 0);
  v->world().run_until(40.0);
  CHECK(explained(*v, first).job.state == job_state::running);
  CHECK_THAT(explained(*v, second).summary,
             Catch::StartsWith("needs 2 A100-40GB; 1 is idle, 2 on a-1, which is absent"));
  auto simulated = harness::small_job("simulated");
  simulated.model = harness::gpt2(48, 1600, 32);
  simulated.request.type = simulated.limits.required_gpu_type = "A100-40GB";
  simulated.limits.max_gpus = 2;
  const auto third = submitted(*v, 3, simulated).job;
  REQUIRE(third != 0);
  v->world().run_until(45.0);
  CHECK_THAT(explained(*v, third).summary, Catch::Contains("2 on a-1, which is absent"));
}

TEST_CASE("every program gets its number of GPUs in a running cluster, under every policy") {
  for (const auto name : planners::policy_names()) {
    CAPTURE(name);
    auto v = admission_cluster(name);
    v->world().run_until(5.0);
    std::uint64_t request = 0;
    std::map<job_id, std::uint32_t> asked;
    for (const std::uint32_t gpus : {4, 1, 3, 2}) {
      auto program = harness::small_job("program");
      program.program.command = {"train"};
      program.request.exact = program.assumed.model = true;
      program.request.gpus = gpus;
      asked[submitted(*v, ++request, program).job] = gpus;
    }
    v->world().run_until(800.0);
    std::size_t granted = 0;
    for (const auto& e : v->journal()) {
      const auto* g = std::get_if<lease_granted>(&e);
      if (!g) continue;
      ++granted;
      std::uint32_t devices = 0;
      for (const auto& part : g->parts) {
        devices += std::uint32_t(part.devices.size());
        CHECK(part.devices.size() == g->parts.front().devices.size());
      }
      CHECK(devices == asked.at(g->job));
    }
    CHECK(granted >= 4);
  }
}

TEST_CASE("every policy obeys a job's limits on GPUs") {
  for (const auto name : planners::policy_names()) {
    INFO(name);
    auto v = admission_cluster(name);
    v->world().run_until(5.0);
    auto job = harness::small_job("bounded", 1'000'000, 64);
    job.request.gpus = 2;
    job.limits.max_gpus = 2;
    job.request.type = job.limits.required_gpu_type = "RTX2080Ti";
    job.model = harness::gpt2(4, 256, 4);
    const auto id = submitted(*v, 1, job).job;
    auto training = job;
    training.name = "training";
    harness::train_it(training);
    const auto second = submitted(*v, 2, training).job;
    v->world().run_until(200.0 + planners::make_policy(name)->traits().round_s);
    for (const auto j : {id, second}) {
      const auto s = explained(*v, j).job;
      INFO(s.detail);
      REQUIRE(s.state == job_state::running);
      CHECK(total_gpus(s.where) <= 2);
      for (const auto& share : s.where)
        CHECK(harness::small_cluster()->gpu_of(share.node).name == "RTX2080Ti");
    }
  }
}

TEST_CASE("a job that can never run is refused with the figures, even while every GPU is taken") {
  auto v = admission_cluster();
  v->world().run_until(5.0);
  for (std::uint64_t i = 1; i <= 14; ++i) {
    auto job = harness::small_job("filler", 1'000'000, 1);
    if (i > 10) job.model = harness::gpt2(4, 256, 4);
    submitted(*v, i, job);
  }
  v->world().run_until(20.0);
  const auto reason_of = [&](std::uint64_t request, const job_spec& job) {
    const auto reply = submitted(*v, request, job);
    CHECK(reply.job == 0);
    CHECK(reply.why.code == reason::kind::infeasible);
    return reply.why.text;
  };
  auto job = harness::small_job("large", 100, 1);
  job.model = harness::gpt2(96, 12288, 96);
  CHECK(reason_of(101, job).ends_with("GB per GPU; the largest here has 48 GB"));
  job = harness::small_job("poor", 100);
  job.limits.budget = 1e-6;
  CHECK(reason_of(102, job).starts_with("no plan stays within the budget of 1e-06; the cheapest"));
  job = harness::small_job("hasty", 100);
  job.limits.slo_s = 1e-3;
  CHECK(reason_of(103, job).starts_with("no plan meets slo_s (0.001 s); the fastest takes"));
  harness::train_it(job);
  CHECK(reason_of(104, job).starts_with("no plan meets slo_s (0.001 s); the fastest takes"));
  job = harness::small_job("foreign", 100);
  job.limits.required_gpu_type = "H100";
  CHECK(troupe::test::has_facts(reason_of(105, job), {"H100", "gpu_type"}));
  job = harness::small_job("deep", 100);
  harness::train_it(job);
  job.pipeline.stages = 20;
  job.limits.max_gpus = 1;
  job.pipeline.data_parallel = 4;
  job.model = harness::gpt2(96, 12288, 96);
  CHECK(reason_of(106, job).find("on the 14 GPUs") != std::string::npos);
}

TEST_CASE("a running job whose deadline passes is ended") {
  auto v = admission_cluster();
  v->world().run_until(5.0);
  auto job = harness::small_job("late", 500, 1);
  job.limits.deadline_s = 1;
  // Planning refuses what takes longer than the deadline; a slow start is not in its figures.
  job.iterations = 1;
  const auto running = submitted(*v, 1, job).job;
  v->world().run_until(15.0);
  const auto e = explained(*v, running);
  INFO(e.summary);
  CHECK(e.job.state == job_state::failed);
  CHECK(e.job.detail.find("its deadline has passed: deadline_s is 1") != std::string::npos);
  std::size_t revoked = 0;
  for (const auto& entry : v->journal()) revoked += std::holds_alternative<lease_revoked>(entry);
  CHECK(revoked == 1);
}

TEST_CASE("a waiting job is ended when its deadline passes, and not before") {
  for (const bool crashes : {false, true}) {
    CAPTURE(crashes);
    auto v = admission_cluster();
    v->world().run_until(5.0);
    for (std::uint64_t i = 1; i <= 14; ++i) {
      auto filler = harness::small_job("filler", 1'000'000, 1);
      if (i > 10) filler.model = harness::gpt2(4, 256, 4);
      submitted(*v, i, filler);
    }
    v->world().run_until(20.0);
    auto job = harness::small_job("late", 10, 1);
    job.limits.deadline_s = 40;
    const auto id = submitted(*v, 101, job).job;
    const double submitted_s = v->world().now_s();
    v->world().run_until(submitted_s + 10);
    // The jobs that a new controller reads from the journal have their deadlines, too.
    if (crashes) v->world().crash(controller_address, 5);
    v->world().run_until(submitted_s + 38);
    CHECK(explained(*v, id).job.state == job_state::waiting);
    v->world().run_until(submitted_s + 43);
    const auto e = explained(*v, id);
    INFO(e.summary);
    CHECK(e.job.state == job_state::failed);
    CHECK(troupe::test::has_facts(e.job.detail, {"deadline has passed", "deadline_s is 40"}));
    std::size_t ended = 0;
    for (const auto& entry : v->journal())
      if (const auto* end = std::get_if<job_ended>(&entry)) ended += end->job == id;
    CHECK(ended == 1);
  }
}

TEST_CASE("explain shows a running job's placement, ranking figures and the other nodes") {
  auto v = admission_cluster();
  v->world().run_until(5.0);
  const auto id = submitted(*v, 1, harness::small_job("one", 1'000'000)).job;
  v->world().run_until(8.0);
  const auto e = explained(*v, id);
  REQUIRE(e.job.state == job_state::running);
  CHECK(e.metric == "samples/s per GPU");
  for (const auto& p : e.plans) CHECK(p.metric > 0);
  std::set<std::string> verdicts;
  for (const auto& p : e.plans) verdicts.insert(p.verdict);
  CHECK(verdicts.size() > 2);
  CHECK(e.placement.size() == 5);
  std::string all;
  for (const auto& s : e.placement) all += s + "\n";
  INFO(all);
  CHECK(all.find("idle GPUs used") != std::string::npos);
}
