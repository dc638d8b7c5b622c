#include "actors/control/scheduling/estimator.hpp"

#include <catch2/catch.hpp>

#include <caf/all.hpp>

#include "harness/small_cluster.hpp"
#include "runtime/virtual/virtual_world.hpp"

using namespace troupe;
using namespace troupe::actors;
using harness::small_job;

namespace {

class clock_by_hand final : public runtime::clock {
 public:
  double now_s() const override { return at_s; }
  double wall_s() const override { return at_s; }
  double at_s = 100;
};

/// Notes which jobs it plans, on a cluster with how much headroom.
class noting_policy final : public planners::policy {
 public:
  std::string_view name() const override { return "noting"; }
  planners::policy_traits traits() const override { return {.plans_by_request = by_request}; }
  expected<std::vector<plan>> plans_of(const cluster& c, const job_spec& job,
                                       planners::planning_budget& budget) const override {
    planned.push_back(job.name);
    headroom.push_back(c.settings.memory_headroom);
    if (clock) clock->at_s += takes_s;
    for (int i = 0; clock && i < 100; ++i) budget.spend(10);
    if (job.name == "impossible") return refuse(reason::kind::infeasible, "there is no way");
    return std::vector<plan>(1);
  }
  std::vector<planners::decision> decide(const planners::snapshot&, random_source&) const override {
    return {};
  }
  reason why_waiting(const planners::snapshot&, job_id) const override { return {}; }

  bool by_request = false;
  double takes_s = 0;
  std::shared_ptr<clock_by_hand> clock;
  mutable std::vector<std::string> planned;
  mutable std::vector<double> headroom;
};

struct asked_estimator {
  std::shared_ptr<noting_policy> policy = std::make_shared<noting_policy>();
  std::vector<plans_reply> replies;
  runtime::virtual_world world{*harness::small_cluster()};
  estimator_actor actor;
  scheduler_actor asker;

  explicit asked_estimator(std::shared_ptr<clock_by_hand> clock = nullptr) {
    world.add_host(controller_address, [this, clock](const runtime::host& h) {
      controller_options o;
      o.cluster = harness::small_cluster();
      o.policy = policy;
      o.virtual_time = !clock;
      auto host = h;
      if (clock) host.clock = clock;
      policy->clock = clock;
      actor = spawn_actor<estimator_state>(world.system(), host, o);
      const auto receives = world.system().spawn([this](caf::event_based_actor*) -> caf::behavior {
        return {[this](const plans_reply& r) { replies.push_back(r); }};
      });
      asker = caf::actor_cast<scheduler_actor>(receives);
      return std::vector{caf::actor_cast<caf::actor>(actor), receives};
    });
    settle();
  }
  void ask(const std::vector<job_spec>& jobs, double memory_factor = 1) {
    for (const auto& j : jobs)
      caf::anon_send(
          actor, plans_request{++asked, std::make_shared<const job_spec>(j), memory_factor, asker});
    settle();
  }
  void settle() { world.run_until(world.now_s() + 0.01); }
  /// How often it plans, asked for one job and then for another.
  std::size_t plans_for(const job_spec& a, const job_spec& b) {
    policy->planned.clear();
    ask({a});
    ask({b});
    return policy->planned.size();
  }

  job_id asked = 0;
};

job_spec named(std::string name) {
  return small_job(std::move(name), 100);
}

}  // namespace

TEST_CASE("jobs that differ in nothing that plans depend on have their plans made once") {
  const auto with = [](auto&& change) {
    auto j = named("one");
    change(j);
    return j;
  };
  const auto times = [&](bool by_request, auto&& change) {
    asked_estimator e;
    e.policy->by_request = by_request;
    const auto count = e.plans_for(named("one"), with(change));
    REQUIRE(e.replies.size() == 2);
    CHECK(e.replies[0].job == 1);
    CHECK(e.replies[1].job == 2);
    CHECK(e.replies[1].plans->size() == 1);
    return count;
  };
  CHECK(times(false, [](job_spec& j) { j.name = "two"; }) == 1);
  CHECK(times(false, [](job_spec& j) { j.priority = 5; }) == 1);
  CHECK(times(false, [](job_spec& j) { j.iterations = 7; }) == 1);
  CHECK(times(false, [](job_spec& j) { j.request.gpus = 2; }) == 1);
  CHECK(times(true, [](job_spec& j) { j.request.gpus = 2; }) == 2);
  CHECK(times(false, [](job_spec& j) { j.global_batch = 8; }) == 2);
  CHECK(times(false, [](job_spec& j) { j.program.command = {"x"}; }) == 2);
  // The plans of two jobs do not depend on which programs they run.
  asked_estimator e;
  CHECK(e.plans_for(with([](job_spec& j) { j.program.command = {"x"}; }), with([](job_spec& j) {
                      j.program.command = {"y", "z"};
                    })) == 1);
}

TEST_CASE("of a job with a deadline or a budget the plans depend on how much there is to do") {
  const auto times = [](auto&& limit) {
    asked_estimator e;
    auto a = named("one"), b = named("one");
    limit(a), limit(b);
    b.iterations = 7;
    return e.plans_for(a, b);
  };
  CHECK(times([](job_spec&) {}) == 1);
  CHECK(times([](job_spec& j) { j.limits.deadline_s = 100; }) == 2);
  CHECK(times([](job_spec& j) { j.limits.budget = 100; }) == 2);
  CHECK(times([](job_spec& j) { j.limits.slo_s = 100; }) == 2);
}

TEST_CASE("jobs that are quick to plan go first, others in the order in which they came") {
  asked_estimator e;
  auto deep = named("deep"), pipeline = named("pipeline"), long_pipeline = named("long pipeline");
  deep.model.layers = 9000;
  pipeline.train.emplace();
  pipeline.pipeline.stages = 2;
  long_pipeline = pipeline;
  long_pipeline.name = "long pipeline";
  long_pipeline.pipeline.stages = 6;
  auto second = named("second");
  second.global_batch = 8;
  e.ask({long_pipeline, pipeline, deep, named("first"), second});
  CHECK(e.policy->planned ==
        std::vector<std::string>{"first", "second", "deep", "pipeline", "long pipeline"});
}

TEST_CASE("a job that ran out of memory is planned with the headroom that it is known to need") {
  asked_estimator e;
  const double usual = harness::small_cluster()->settings.memory_headroom;
  e.ask({named("one")});
  e.ask({named("one")}, 1.5);
  REQUIRE(e.policy->headroom.size() == 2);
  CHECK(e.policy->headroom[0] == Approx(usual));
  CHECK(e.policy->headroom[1] == Approx((1 + usual) * 1.5 - 1));
  REQUIRE(e.replies.size() == 2);
  CHECK(e.replies[1].memory_factor == 1.5);
}

TEST_CASE("why a job has no plans is told, and told again") {
  asked_estimator e;
  e.ask({named("impossible")});
  e.ask({named("impossible")});
  REQUIRE(e.replies.size() == 2);
  for (const auto& r : e.replies) {
    CHECK(r.plans->empty());
    CHECK(r.why.text == "there is no way");
  }
  CHECK(e.policy->planned.size() == 1);
}

TEST_CASE("plans that were cut off for lack of time are not kept for the next job") {
  const auto times = [](double takes_s) {
    auto clock = std::make_shared<clock_by_hand>();
    asked_estimator e{clock};
    e.policy->takes_s = takes_s;
    return e.plans_for(named("one"), named("two"));
  };
  CHECK(times(4.9) == 1);
  CHECK(times(5.1) == 2);
}
