#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "actors/worlds/virtual_cluster.hpp"
#include "harness/small_cluster.hpp"

// When the scheduler calls a policy that is called on arrivals and departures.

using namespace troupe;
using namespace troupe::actors;

namespace {

/// Starts nothing. From the second job's arrival on it asks to be called again at `due_s`, which is
/// seven seconds later.
struct asks_again : planners::policy {
  static constexpr double wait_s = 7, rounding_s = 1e-6;
  mutable std::vector<double> calls;  // the times of all
  mutable std::optional<double> due_s;

  std::string_view name() const override { return "asks-again"; }
  reason why_waiting(const planners::snapshot&, job_id) const override { return {}; }
  std::vector<planners::decision> decide(const planners::snapshot& s,
                                         random_source&) const override {
    calls.push_back(s.now_s);
    return {};
  }
  double decide_again_s(const planners::snapshot& s) const override {
    if (!due_s && s.waiting.contains(2)) due_s = s.now_s + wait_s;
    return due_s && *due_s > s.now_s + rounding_s ? *due_s - s.now_s : 0;
  }

  std::size_t calls_between(double from_s, double until_s) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(calls, [&](double t) { return t >= from_s && t < until_s; }));
  }
};

/// Jobs arrive at these times; until the 100th second.
std::shared_ptr<const asks_again> called_for(
    const std::vector<double>& arrivals_s,
    std::shared_ptr<const asks_again> policy = std::make_shared<const asks_again>(),
    double gather_s = 0, const std::function<void(virtual_cluster&)>& meanwhile = {},
    std::uint64_t iterations = 200) {
  virtual_cluster_options o;
  o.cluster = harness::small_cluster();
  o.policy = policy;
  o.gather_s = gather_s;
  virtual_cluster v{o};
  std::vector<arrival> jobs;
  for (const auto at_s : arrivals_s) jobs.push_back({at_s, harness::small_job("job", iterations)});
  v.submit(std::move(jobs));
  if (meanwhile) meanwhile(v);
  v.world().run_until(100);
  return policy;
}

/// Notes how many jobs it could have started together at each call.
struct counts_waiting : asks_again {
  mutable std::vector<std::size_t> waiting;  // for each of `calls`

  std::vector<planners::decision> decide(const planners::snapshot& s,
                                         random_source& random) const override {
    waiting.push_back(s.waiting.size());
    return asks_again::decide(s, random);
  }
  double decide_again_s(const planners::snapshot&) const override { return 0; }
};

std::shared_ptr<const counts_waiting> counted_for(
    const std::vector<double>& arrivals_s, double gather_s,
    const std::function<void(virtual_cluster&)>& meanwhile = {}) {
  auto policy = std::make_shared<const counts_waiting>();
  called_for(arrivals_s, policy, gather_s, meanwhile);
  return policy;
}

/// Starts job 1 on four GPUs of node 0, and moves it to `gpus` of node 4 when job 2 arrives, which
/// it never starts.
struct moves_once : counts_waiting {
  std::uint32_t gpus;
  mutable bool moved = false;
  explicit moves_once(std::uint32_t n) : gpus{n} {}

  static plan on(const planners::job_view& j, std::uint32_t gpus) {
    const auto p = std::ranges::find(*j.plans, gpus, &plan::gpus);
    REQUIRE(p != j.plans->end());
    return *p;
  }
  std::vector<planners::decision> decide(const planners::snapshot& s,
                                         random_source& random) const override {
    counts_waiting::decide(s, random);
    if (s.waiting.contains(1) && !moved)
      return {planners::start_job(1, on(s.waiting.at(1), 4), {{0, 4}})};
    if (!s.waiting.contains(2) || !s.running.contains(1) || std::exchange(moved, true)) return {};
    auto d = planners::start_job(1, on(s.running.at(1), gpus), {{4, gpus}});
    d.what = planners::decision::kind::move;
    return {d};
  }
};

constexpr double soon_s = 0.2;  // messages between hosts

}  // namespace

TEST_CASE("a policy that asks to be called again is called at that time, though nothing happens") {
  const auto policy = called_for({10, 30});
  REQUIRE(policy->due_s);
  const double due_s = *policy->due_s, tolerance_s = 0.01;
  CHECK(policy->calls_between(due_s - 5, due_s - tolerance_s) == 0);
  CHECK(policy->calls_between(due_s - tolerance_s, due_s + tolerance_s) == 1);
  CHECK(policy->calls_between(due_s + tolerance_s, due_s + 60) == 0);
}

TEST_CASE("a policy that asks at several events for the same time is called then once") {
  const auto policy = called_for({10, 30, 32, 34});
  REQUIRE(policy->due_s);
  const double due_s = *policy->due_s, tolerance_s = 0.01;
  CHECK(policy->calls_between(due_s - 6, due_s - tolerance_s) >= 2);
  CHECK(policy->calls_between(due_s - tolerance_s, due_s + 60) == 1);
}

TEST_CASE("a policy that asks for an earlier time than before is called at the earlier time") {
  struct second_thoughts : asks_again {
    double decide_again_s(const planners::snapshot& s) const override {
      if (due_s) return 0;
      if (!s.waiting.contains(2)) return 1000;
      due_s = s.now_s + wait_s;
      return wait_s;
    }
  };
  const auto policy = called_for({10, 30}, std::make_shared<const second_thoughts>());
  REQUIRE(policy->due_s);
  CHECK(policy->calls_between(*policy->due_s - 0.01, *policy->due_s + 0.01) == 1);
}

TEST_CASE("a policy that asks again at every call is called on and on") {
  struct always : asks_again {
    double period_s;
    explicit always(double p) : period_s{p} {}
    double decide_again_s(const planners::snapshot&) const override { return period_s; }
  };
  for (const double period_s : {0.7, 1.0 / 3, 0.123456789123, 2.0, 7e-3}) {
    CAPTURE(period_s);
    const auto policy = called_for({10}, std::make_shared<const always>(period_s));
    const double first_s = policy->calls.front();
    CHECK(policy->calls_between(first_s + 1, first_s + 51) >=
          static_cast<std::size_t>(50 / period_s) - 1);
    CHECK(policy->calls_between(first_s + 1, first_s + 51) <=
          static_cast<std::size_t>(50 / period_s) + 1);
  }
}

TEST_CASE("a policy is not called while no job waits or runs") {
  std::size_t calls = 0;
  virtual_cluster_options o;
  o.cluster = harness::small_cluster();
  o.policy = planners::make_policy("frenzy");
  o.on_decision = [&](double, std::size_t) { ++calls; };
  virtual_cluster v{o};
  v.submit({{20, harness::small_job("job", 1)}});
  v.world().run_until(19);
  CHECK(calls == 0);
  v.world().run_until(500);
  REQUIRE(std::get<query_reply>(v.ask(query_jobs{}).reply->first).jobs.at(0).state ==
          job_state::finished);
  const auto for_the_job = calls;
  CHECK(for_the_job > 0);
  v.world().crash(node_address(1));  // its loss is an event
  v.world().run_until(600);
  CHECK(calls == for_the_job);
}

TEST_CASE("jobs that arrive within gather_s of the first one are decided on together") {
  const auto policy = counted_for({10, 10.5, 11}, 2);
  REQUIRE(policy->calls.size() == 1);
  CHECK(policy->calls[0] >= 12);
  CHECK(policy->calls[0] < 12 + soon_s);
  CHECK(policy->waiting[0] == 3);
}

TEST_CASE("jobs that keep arriving delay no decision for longer than gather_s") {
  std::vector<double> arrivals_s;
  for (int i = 0; i < 40; ++i) arrivals_s.push_back(10 + i * 0.5);
  const auto policy = counted_for(arrivals_s, 2);
  REQUIRE(!policy->calls.empty());
  for (const double at_s : arrivals_s) {
    CAPTURE(at_s);
    CHECK(policy->calls_between(at_s, at_s + 2 + soon_s) > 0);
  }
  CHECK(policy->waiting.front() >= 4);
  CHECK(policy->waiting.back() == 40);
}

TEST_CASE("without gather_s each arrival is decided at once") {
  const auto policy = counted_for({10, 10.5, 11}, 0);
  REQUIRE(!policy->calls.empty());
  CHECK(policy->calls[0] < 10 + soon_s);
  CHECK(policy->waiting[0] == 1);
  CHECK(policy->calls_between(10.5, 10.5 + soon_s) > 0);
  CHECK(policy->calls_between(11, 11 + soon_s) > 0);
}

TEST_CASE("the end of a job is decided at once, and with it the jobs that have just arrived") {
  const auto policy = counted_for({10, 10.5, 11}, 60, [](virtual_cluster& v) {
    v.world().run_until(20);
    REQUIRE(v.ask(cancel_job{0, 1}).reply);
  });
  REQUIRE(!policy->calls.empty());
  CHECK(policy->calls[0] >= 20);
  CHECK(policy->calls[0] < 20 + soon_s);
  CHECK(policy->waiting[0] == 2);
}

TEST_CASE("the loss of a node is decided at once, and with it the jobs that have just arrived") {
  const auto policy = counted_for({10, 10.5, 11}, 60, [](virtual_cluster& v) {
    v.world().run_until(20);
    v.world().crash(node_address(1));
  });
  REQUIRE(!policy->calls.empty());
  CHECK(policy->calls[0] < 20 + 2 * harness::small_cluster()->settings.lease_s);
  CHECK(policy->waiting[0] == 3);
}

TEST_CASE("a policy is not called because a job stops and starts that it has moved") {
  const auto policy = std::make_shared<const moves_once>(4);
  called_for(
      {10, 20}, policy, 0,
      [&](virtual_cluster& v) {
        v.world().run_until(60);
        const auto jobs = std::get<query_reply>(v.ask(query_jobs{}).reply->first).jobs;
        REQUIRE(jobs.at(0).progress.attempts == 2);
        REQUIRE(jobs.at(0).where == allocation{{4, 4}});
      },
      1'000'000);
  REQUIRE(policy->moved);
  // At the second arrival, and with the GPUs of node 0, which nobody gets.
  CHECK(policy->calls_between(20, 60) == 2);
}
