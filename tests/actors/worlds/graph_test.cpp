#include <catch2/catch.hpp>

#include "actors/worlds/virtual_cluster.hpp"
#include "harness/small_cluster.hpp"

using namespace troupe;
using namespace troupe::actors;
using harness::small_cluster;
using harness::small_job;

namespace {

virtual_cluster_options options(std::string_view policy = "frenzy") {
  virtual_cluster_options o;
  o.cluster = small_cluster();
  o.policy = planners::make_policy(policy);
  return o;
}

job_status status(virtual_cluster& v, job_id id) {
  auto reply = v.ask(query_jobs{0, id});
  REQUIRE(reply.reply);
  const auto& q = std::get<query_reply>(reply.reply->first);
  REQUIRE(q.jobs.size() == 1);
  return q.jobs.front();
}

}  // namespace

TEST_CASE("a submitted job is planned, placed, run and finished without naming a GPU") {
  virtual_cluster v{options()};
  v.submit({{10, small_job("one")}});
  v.world().run_until(12.0);
  REQUIRE(v.accepted() == std::vector<job_id>{1});
  const auto running = status(v, 1);
  CHECK(running.state == job_state::running);
  CHECK(running.how.gpus() == total_gpus(running.where));
  CHECK(running.model == "gpt2");
  CHECK(running.iterations == 200);
  REQUIRE(running.eta_s);
  v.world().run_until(5000.0);
  const auto done = status(v, 1);
  CHECK(done.ended_s == Approx(12 + *running.eta_s).margin(1.5));
  CHECK_FALSE(done.eta_s);
  CHECK(done.iteration == 200);
  CHECK(done.state == job_state::finished);
  CHECK(done.progress.attempts == 1);
  CHECK(done.progress.iterations_done == 200);
}

TEST_CASE("a workload that is read where it is runs as its copy does") {
  const std::vector<arrival> workload{
      {1, small_job("first", 300)}, {1, small_job("second", 100)}, {40, small_job("third")}};
  virtual_cluster copied{options()}, read{options()};
  copied.submit(workload);
  read.submit_from(workload);
  for (auto* v : {&copied, &read}) v->world().run_until(5000.0);
  CHECK(read.accepted() == std::vector<job_id>{1, 2, 3});
  CHECK(status(read, 3).state == job_state::finished);
  CHECK(status(copied, 3).state == job_state::finished);
  CHECK(read.world().fingerprint() == copied.world().fingerprint());
}

TEST_CASE("a waiting job is explained with what it needs and what is idle") {
  virtual_cluster v{options()};
  auto big = small_job("big", 1000, 2);
  big.model = harness::gpt2(32, 4096, 32);
  v.submit({{1, big}, {2, big}});  // only four A40s can hold it
  v.world().run_until(5.0);
  auto reply = v.ask(explain_job{0, 2});
  REQUIRE(reply.reply);
  const auto& e = std::get<explanation>(reply.reply->first);
  INFO(e.summary);
  CHECK(e.job.job == 2);
  REQUIRE(e.job.state == job_state::waiting);
  CHECK(e.summary.find("needs") != std::string::npos);
}

TEST_CASE("a running job can be cancelled, and its GPUs become idle") {
  virtual_cluster v{options()};
  v.submit({{1, small_job("long", 1'000'000)}});
  v.world().run_until(5.0);
  REQUIRE(status(v, 1).state == job_state::running);
  auto reply = v.ask(cancel_job{0, 1});
  REQUIRE(reply.reply);
  CHECK(std::get<cancel_reply>(reply.reply->first).done);
  v.world().run_until(10.0);
  CHECK(status(v, 1).state == job_state::cancelled);
  auto all = v.ask(query_jobs{0, 0});
  std::uint32_t idle = 0;
  for (const auto& n : std::get<query_reply>(all.reply->first).nodes) idle += n.idle;
  CHECK(idle == 14);
}

TEST_CASE("the job of a node that dies moves to another node") {
  virtual_cluster v{options()};
  v.submit({{1, small_job("survivor", 20'000)}});
  v.world().run_until(100.0);
  const auto before = status(v, 1);
  REQUIRE(before.state == job_state::running);
  v.world().crash(node_address(before.where[0].node));
  v.world().run_until(115.0);
  const auto after = status(v, 1);
  CHECK(after.state == job_state::running);
  CHECK(after.progress.attempts == 2);
  CHECK(after.where[0].node != before.where[0].node);
  CHECK(after.progress.iterations_done > 0);  // of the last checkpoint
}

TEST_CASE("a node that restarts at once has lost its work, and the controller notices") {
  virtual_cluster v{options()};
  v.submit({{1, small_job("survivor", 20'000)}});
  v.world().run_until(10.0);
  const auto a = node_address(status(v, 1).where[0].node);
  v.world().crash(a);
  v.world().restart(a);
  v.world().run_until(13.0);
  const auto after = status(v, 1);
  CHECK(after.progress.attempts == 2);
  CHECK(after.state == job_state::running);
}

TEST_CASE("wall clocks that step back and forth cost no lease") {
  virtual_cluster v{options()};
  v.submit({{1, small_job("steady", 1'000'000)}});
  v.world().run_until(10.0);
  const auto n = status(v, 1).where[0].node;
  const auto a = node_address(n);
  const auto g = gateway_address(small_cluster()->nodes[n].datacenter);
  for (const auto host : {a, g, controller_address})
    for (const double ahead_s : {-3600.0, 600.0, 0.0}) {
      v.world().set_wall_clock(host, ahead_s);
      v.world().run_until(v.world().now_s() + 60);
    }
  const auto after = status(v, 1);
  CHECK(after.state == job_state::running);
  CHECK(after.progress.attempts == 1);
}

TEST_CASE("work that a node finished while it counted as lost is not repeated") {
  auto o = options();
  auto one = std::make_shared<cluster>(*small_cluster());
  one->nodes.resize(1);  // no other node can run the job
  o.cluster = one;
  o.faults.partitions = {{{"a-0"}, {}, 2, 15}};
  virtual_cluster v{std::move(o)};
  v.submit({{0.5, small_job("quick", 1)}});  // starts, which takes 2 s, and is done at once
  v.world().run_until(12.0);
  CHECK(status(v, 1).state == job_state::waiting);
  v.world().run_until(30.0);
  const auto after = status(v, 1);
  CHECK(after.state == job_state::finished);
  CHECK(after.progress.attempts == 1);
  CHECK(after.progress.iterations_done == 1);
}

TEST_CASE("a restarted controller continues where its journal ends") {
  virtual_cluster v{options()};
  v.submit({{1, small_job("first", 20'000)}, {1, small_job("second", 20'000)}});
  v.world().run_until(20.0);
  v.world().crash(controller_address);
  v.world().run_until(22.0);
  v.world().restart(controller_address);
  v.world().run_until(25.0);
  for (job_id id : {1, 2}) {
    const auto s = status(v, id);
    CHECK(s.state == job_state::running);
    CHECK(s.progress.attempts == 1);  // it continued while no test code was polling
  }
  v.world().run_until(20'000.0);
  for (job_id id : {1, 2}) CHECK(status(v, id).state == job_state::finished);
}

TEST_CASE("a repeated submission returns the same job") {
  virtual_cluster v{options()};
  const submit_job request{42, small_job("once")};
  auto first = v.ask(request), second = v.ask(request);
  CHECK(std::get<submit_reply>(first.reply->first).job == 1);
  CHECK(std::get<submit_reply>(second.reply->first).job == 1);
}

TEST_CASE("an out-of-memory exit moves the job to a larger plan and records the prediction") {
  virtual_cluster v{options("opportunistic")};
  auto big = small_job("too-big-for-one", 50, 8);
  big.model = harness::gpt2(24, 2048, 16);  // 1.3 B parameters
  big.request.gpus = 1;
  big.microbatches = 1;  // otherwise it fits, one sample after the other
  v.submit({{1, big}});
  v.world().run_until(40'000.0);
  auto reply = v.ask(explain_job{0, 1});
  const auto& e = std::get<explanation>(reply.reply->first);
  REQUIRE_FALSE(e.memory.empty());
  CHECK(e.memory.front().out_of_memory);
  CHECK(e.job.progress.attempts > 1);
  CHECK(e.job.state == job_state::finished);
}

TEST_CASE("the same seed gives the same fingerprint, another seed another one") {
  auto run = [](std::uint64_t seed) {
    auto o = options();
    o.seed = seed;
    o.faults.loss = 0.05;
    virtual_cluster v{o};
    v.submit({{1, small_job("a")}, {2, small_job("b")}, {3, small_job("c")}});
    v.world().run_until(3000.0);
    return v.world().fingerprint();
  };
  CHECK(run(1) == run(1));
  CHECK(run(1) != run(2));
}
