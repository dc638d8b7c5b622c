#include <catch2/catch.hpp>

#include "actors/worlds/virtual_cluster.hpp"
#include "harness/facts.hpp"
#include "harness/small_cluster.hpp"

// A controller right after its start, and when nodes keep dying.

using namespace troupe;
using namespace troupe::actors;

namespace {

virtual_cluster_options startup_options() {
  virtual_cluster_options o;
  o.cluster = harness::small_cluster();
  o.policy = planners::make_policy("frenzy");
  return o;
}

explanation asked_about(virtual_cluster& v, job_id id) {
  auto reply = v.ask(explain_job{0, id});
  REQUIRE(reply.reply);
  return std::get<explanation>(reply.reply->first);
}

}  // namespace

TEST_CASE("nothing is placed until all nodes have reported, for three heartbeats at most") {
  auto o = startup_options();
  virtual_cluster v{o};
  const auto late = node_address(1), never = node_address(2);
  v.world().crash(late);
  v.world().crash(never);
  v.submit({{0.5, harness::small_job("early", 1'000'000)}});
  v.world().run_until(1.5);
  const auto waiting = asked_about(v, 1);
  CHECK(waiting.job.state == job_state::waiting);
  CHECK(waiting.job.waiting_reason == "nodes to report");
  CHECK(troupe::test::has_facts(waiting.summary, {"a-1, b-0"}));
  v.world().run_until(4.0);
  CHECK(asked_about(v, 1).job.state == job_state::running);
}

TEST_CASE("the start-up window ends as soon as all nodes have reported") {
  auto o = startup_options();
  auto c = std::make_shared<cluster>(*o.cluster);
  c->settings.heartbeat_s = 1000;
  c->settings.lease_s = 5000;
  o.cluster = c;
  virtual_cluster v{o};
  v.submit({{1, harness::small_job("early", 1'000'000)}});
  v.world().run_until(3.0);
  CHECK(asked_about(v, 1).job.state == job_state::running);
}

TEST_CASE("a restarted controller answers nothing before it has replayed its jobs") {
  auto o = startup_options();
  virtual_cluster v{o};
  std::vector<arrival> many;
  for (int i = 0; i < 50; ++i) many.push_back({1, harness::small_job("j", 1'000'000)});
  v.submit(std::move(many));
  v.world().run_until(10.0);
  for (int i = 0; i < 5; ++i) {
    v.world().crash(controller_address);
    v.world().restart(controller_address);
    auto one = v.ask(query_jobs{0, 7});
    REQUIRE(one.reply);
    CHECK(std::get<query_reply>(one.reply->first).jobs.size() == 1);
    auto all = v.ask(query_jobs{0, 0});
    REQUIRE(all.reply);
    CHECK(std::get<query_reply>(all.reply->first).jobs.size() == 50);
  }
}

TEST_CASE("a job whose nodes keep dying fails after its restarts, with a sentence") {
  auto o = startup_options();
  virtual_cluster v{o};
  auto job = harness::small_job("poison", 100'000'000);
  job.limits.max_restarts = 2;
  v.submit({{1, job}});
  for (int attempt = 0; attempt < 3; ++attempt) {
    v.world().run_until(v.world().now_s() + 15);
    const auto s = asked_about(v, 1).job;
    REQUIRE(s.state == job_state::running);
    CHECK(s.progress.attempts == static_cast<std::uint32_t>(attempt + 1));
    const auto n = node_address(s.where.front().node);
    v.world().crash(n);
    v.world().run_until(v.world().now_s() + 10);
    v.world().restart(n);
  }
  v.world().run_until(v.world().now_s() + 15);
  const auto s = asked_about(v, 1).job;
  CHECK(s.state == job_state::failed);
  CHECK(s.progress.attempts == 3);
  CHECK(
      s.detail.starts_with("lost its node in 3 consecutive attempts without progress (max_restarts "
                           "2); most recently: "));
}

TEST_CASE("attempts with progress do not count against a job's restarts") {
  auto o = startup_options();
  virtual_cluster v{o};
  auto job = harness::small_job("steady", 100'000'000);
  job.limits.max_restarts = 1;
  v.submit({{1, job}});
  for (int attempt = 0; attempt < 4; ++attempt) {
    v.world().run_until(v.world().now_s() + 100);  // longer than checkpoint_s
    const auto s = asked_about(v, 1).job;
    REQUIRE(s.state == job_state::running);
    const auto n = node_address(s.where.front().node);
    v.world().crash(n);
    v.world().run_until(v.world().now_s() + 10);
    v.world().restart(n);
  }
  v.world().run_until(v.world().now_s() + 15);
  CHECK(asked_about(v, 1).job.state == job_state::running);
}
