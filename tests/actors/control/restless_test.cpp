#include <catch2/catch.hpp>
#include <utility>

#include "actors/worlds/virtual_cluster.hpp"
#include "harness/logged_errors.hpp"
#include "harness/small_cluster.hpp"
#include "studies/workload_simulation.hpp"

// Policies that stop and move jobs at every event. The built-in ones do not, but no other code may
// depend on that.

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::studies;
using planners::decision;

namespace {

/// A plan for that many GPUs of a node.
struct one_gpu : planners::policy {
  std::string_view name() const override { return "restless"; }
  reason why_waiting(const planners::snapshot&, job_id) const override { return {}; }

  static decision start(job_id job, node_index n, std::uint32_t gpus = 1) {
    plan how;
    how.data_parallel = gpus;
    how.bytes_per_gpu = 1;
    how.samples_per_s = 1;
    return {decision::kind::start, job, how, {{n, gpus}}, {}};
  }
};

/// Stops the running job for every arriving one, which waits for the next event.
struct stops_for_arrivals : one_gpu {
  std::vector<decision> decide(const planners::snapshot& s, random_source&) const override {
    std::vector<decision> out;
    if (!s.waiting.empty() && s.running.contains(1) && s.waiting.contains(2))
      out.push_back({decision::kind::stop, 1, {}, {}, {}});
    for (const auto& [id, j] : s.waiting)
      if (s.idle.idle(0) > out.size()) out.push_back(start(id, 0));
    return out;
  }
};

/// Always lets the one go that waits.
struct swaps_always : one_gpu {
  std::vector<decision> decide(const planners::snapshot& s, random_source&) const override {
    std::vector<decision> out;
    for (const auto& [id, j] : s.waiting) {
      for (const auto& [other, r] : s.running)
        out.push_back({decision::kind::stop, other, {}, {}, {}});
      out.push_back(start(id, 0, 4));
      break;
    }
    return out;
  }
};

/// Moves job 1 when job 2 comes, and stops it when job 3 comes. Starts others wherever GPUs are
/// idle.
struct stops_what_moves : one_gpu {
  mutable bool moved = false, stopped = false;

  std::vector<decision> decide(const planners::snapshot& s, random_source&) const override {
    if (s.moving.contains(1) && s.waiting.contains(3) && !std::exchange(stopped, true))
      return {{decision::kind::stop, 1, {}, {}, {}}};
    if (s.running.contains(1) && s.waiting.contains(2) && !std::exchange(moved, true)) {
      auto d = start(1, 1);
      d.what = decision::kind::move;
      return {d};
    }
    for (const auto& [id, j] : s.waiting)
      if (id == 1 ? stopped || !moved : stopped) return {start(id, 0)};
    return {};
  }
};

/// Starts a job that was never submitted.
struct starts_the_unknown : one_gpu {
  std::vector<decision> decide(const planners::snapshot& s, random_source&) const override {
    if (s.waiting.empty()) return {};
    return {start(99, 0)};
  }
};

simulation_options small() {
  simulation_options o;
  o.cluster = harness::small_cluster();
  return o;
}

/// Starts the first job on more GPUs than it may have, and all others as they may be.
struct breaks_a_limit : one_gpu {
  std::vector<decision> decide(const planners::snapshot& s, random_source&) const override {
    std::vector<decision> out;
    for (const auto& [id, j] : s.waiting)
      if (s.idle.idle(0) >= 2) out.push_back(start(id, 0, id == 1 ? 2 : 1));
    return out;
  }
};

}  // namespace

TEST_CASE("a lease revoked before its node has received it ends at once") {
  auto o = small();
  const auto first = harness::small_job("first", 400), second = harness::small_job("second", 1);
  // The second arrives while the first one's orders are still in flight.
  const auto r =
      simulate(o, {{1.0, first}, {1.0001, second}}, std::make_shared<const stops_for_arrivals>());
  REQUIRE(r);
  CHECK(r->finished == 2);
  CHECK(r->makespan_s < 200);
}

TEST_CASE("a policy that swaps two jobs forever ends the simulation with a sentence") {
  auto a = harness::small_job("a", 1'000'000), b = a;
  b.name = "b";
  const auto r = simulate(small(), {{1.0, a}, {1.1, b}}, std::make_shared<const swaps_always>());
  REQUIRE_FALSE(r);
  CHECK(r.error().code == reason::kind::invalid);
  CHECK_THAT(r.error().text, Catch::Contains("restless") && Catch::Contains("10000 times"));
}

TEST_CASE("a job stopped during a move waits like any other job, and starts again") {
  const auto job = harness::small_job("job", 400), other = harness::small_job("other", 1);
  const auto policy = std::make_shared<const stops_what_moves>();
  const auto r = simulate(small(), {{1.0, job}, {5.0, other}, {5.0001, other}}, policy);
  REQUIRE(r);
  CHECK(policy->stopped);
  CHECK(r->finished == 3);
}

TEST_CASE("a decision about an unknown job costs its round, and the log says so") {
  const harness::logged_errors errors;
  virtual_cluster_options o;
  o.cluster = harness::small_cluster();
  o.policy = std::make_shared<const starts_the_unknown>();
  virtual_cluster v{o};
  v.submit({{1, harness::small_job("job", 10)}});
  v.world().run_until(20.0);
  CHECK(v.world().count().failures == 0);
  INFO(errors.all());
  CHECK(errors.has("the policy 'restless' decides about job 99 which is neither waiting nor"));
}

TEST_CASE("a start that breaks a job's limit is refused, and other jobs still run") {
  virtual_cluster_options o;
  o.cluster = harness::small_cluster();
  o.policy = std::make_shared<breaks_a_limit>();
  virtual_cluster v{o};
  auto limited = harness::small_job("limited", 10);
  limited.limits.max_gpus = 1;
  v.submit({{1, limited}, {2, harness::small_job("other", 10)}});
  v.world().run_until(200);
  const auto a = v.ask(query_jobs{1, 0});
  REQUIRE(a.reply);
  const auto& jobs = std::get<query_reply>(a.reply->first).jobs;
  REQUIRE(jobs.size() == 2);
  CHECK(jobs[0].state == job_state::waiting);
  CHECK(jobs[1].state == job_state::finished);
}
