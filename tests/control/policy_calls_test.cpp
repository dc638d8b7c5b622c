#include <catch2/catch.hpp>

#include <algorithm>
#include <optional>

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
    std::shared_ptr<const asks_again> policy = std::make_shared<const asks_again>()) {
  virtual_cluster_options o;
  o.cluster = harness::small_cluster();
  o.policy = policy;
  virtual_cluster v{o};
  std::vector<arrival> jobs;
  for (const auto at_s : arrivals_s) jobs.push_back({at_s, harness::small_job("job")});
  v.submit(std::move(jobs));
  v.world().run_until(100);
  return policy;
}

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
