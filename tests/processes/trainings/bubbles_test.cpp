#include <catch2/catch.hpp>

#include <string>

#include <fmt/format.h>

#include "harness/foreign_load.hpp"
#include "processes/shared_cluster.hpp"
#include "processes/trainings.hpp"

// Requests whose prompts are computed in the bubbles of a training, while processes of both are
// killed and stopped. They run on processors that nothing else needs, so these tests run alone.

using namespace troupe;
using namespace troupe::test;

TEST_CASE(
    "requests beside a training are computed in its bubbles, with the tokens of the model alone",
    "[.serial]") {
  const harness::foreign_load others;
  lending_cluster c;
  std::string bubbles;  // of each round
  bool max = false;
  // Guests have the lowest priority: any other load on this machine takes their processors first.
  for (int round = 0; round < 3 && !max; ++round) {
    clients all{c.url, 1};
    const bool answered = all.go_on(100);
    all.end();
    CHECK(all.of.wrong == 0);
    if (!answered && others.was_high()) return;
    REQUIRE(answered);
    CHECK(all.of.failed == 0);
    bubbles += fmt::format("{} of {}; {}\n", all.of.bubbles.load(), all.of.answered.load(),
                           all.of.declined());
    max = 2 * all.of.bubbles >= all.of.answered;
  }
  INFO(bubbles);
  if (!max && others.was_high()) return;
  CHECK(max);

  SECTION("also when a stage pauses, the controller dies, and a stage's node is lost") {
    clients more{c.url, 3};
    REQUIRE(more.go_on(5));
    c.stop_for(c.node_of_stage(1), 1);
    REQUIRE(more.go_on(5));
    CHECK(c.trains_on(20));

    c.cluster->kill("controller");
    const runtime::stopwatch without;
    REQUIRE(more.go_on(20));
    runtime::pause(10 - without.s());  // within the lease
    REQUIRE(c.cluster->restart("controller"));
    CHECK(c.trains_on(20));
    CHECK(c.status().progress.attempts == 1);

    const auto lost = c.node_of_stage(1);
    c.cluster->kill(lost);
    REQUIRE(more.go_on(5));
    REQUIRE(c.wait_until([&](const query_reply& r) {
      const auto at = std::ranges::find(r.jobs, c.training, &job_status::job);
      return at->progress.attempts == 2 && at->state == job_state::running;
    }));
    CHECK(c.trains_on(20));
    REQUIRE(more.go_on(5));
    more.end();
    CHECK(more.of.wrong == 0);
    CHECK(more.of.failed == 0);
  }
}

TEST_CASE(
    "while a training re-plans around a slow stage, guests delay it by less than one operation on "
    "average",
    "[.serial]") {
  const harness::foreign_load others;
  lending_cluster c;
  clients all{c.url, 2};
  REQUIRE(all.go_on(5));
  const auto report = [&] { return how(c, c.training); };
  // Stopped so often that most of its operations are.
  const auto slow = c.node_of_stage(1);
  constexpr double stopped_s = 0.006, runs_s = 0.003;
  const double planned_s = report().planned_s;
  REQUIRE(runtime::wait_until(
      [&] {
        for (int i = 0; i < 100; ++i) {
          c.stop_for(slow, stopped_s);
          runtime::pause(runs_s);
        }
        return report().planned_s > 1.5 * planned_s;
      },
      long_s, 0));
  REQUIRE(all.go_on(20));
  all.end();
  CHECK(all.of.wrong == 0);
  CHECK(all.of.failed == 0);
  const auto r = report();
  REQUIRE(r.bubbles);
  const auto& b = *r.bubbles;
  CAPTURE(planned_s, r.planned_s, b.guest_steps, b.delayed_steps, b.delay_s, b.worst_delay_s,
          b.delay_quantile_s(0.99));
  if (others.was_high()) return;
  CHECK(b.guest_steps > 0);
  // The longest operation of a guest; stopping the process adds to a few.
  const double longest_s = bubble_lending{}.longest_op_ms(false) * 1e-3;
  CHECK(b.delay_quantile_s(0.9) <= longest_s);
  CHECK(b.delay_s <= static_cast<double>(b.delayed_steps) * longest_s);
}

TEST_CASE("a decoder or a gateway that pauses changes no token, and nobody waits for it for good",
          "[.serial]") {
  lending_cluster c;
  {
    clients all{c.url, 3};
    REQUIRE(all.go_on(5));
    c.stop_for("d1", 2 * lending_cluster::lease_s);
    REQUIRE(all.go_on(10));
    all.end();
    CHECK(all.of.wrong == 0);
    CHECK(all.of.failed == 0);
    CHECK(all.of.again > 0);
  }
  for (const bool killed : {false, true}) {
    INFO((killed ? "killed" : "stopped"));
    clients here{c.url, 2}, there{c.cluster->fronts().at("front-2"), 2};
    REQUIRE(here.go_on(5));
    REQUIRE(there.go_on(5));
    if (killed) {
      c.cluster->kill("dc1/gateway");
      runtime::pause(1);
      REQUIRE(c.cluster->restart("dc1/gateway"));
    } else {
      c.stop_for("dc1/gateway", 1);
    }
    REQUIRE(there.go_on(5));
    REQUIRE(here.go_on(5));
    here.end();
    there.end();
    CHECK(here.of.wrong == 0);
    CHECK(here.of.refused == 0);
    CHECK(there.of.wrong == 0);
    CHECK(there.of.failed == 0);
  }
  CHECK(c.trains_on(20));
}

TEST_CASE("prompts of pipelines of two guests have the tokens of the model alone", "[.serial]") {
  const harness::foreign_load others;
  lending_cluster c{[](job_spec& training) {
    training.pipeline.data_parallel = 2;
    training.pipeline.bubbles->depth = 2;
  }};
  clients all{c.url, 2};
  REQUIRE(all.go_on(40));
  all.end();
  CHECK(all.of.wrong == 0);
  CHECK(all.of.failed == 0);
  INFO(all.of.two_guests << " of " << all.of.answered << " by two guests, " << all.of.bubbles
                         << " in bubbles; " << all.of.declined());
  CHECK(all.of.two_guests == all.of.bubbles);
  if (all.of.two_guests == 0 && others.was_high()) return;
  CHECK(all.of.two_guests > 0);
  CHECK(c.trains_on(20));
}
