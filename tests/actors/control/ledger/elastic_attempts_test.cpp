#include "actors/control/ledger/elastic_attempts.hpp"

#include <catch2/catch.hpp>

#include "actors/control/ledger/union_ledger.hpp"
#include "harness/small_cluster.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

job_spec elastic_spec() {
  auto spec = harness::small_job("job", 100, 8);
  spec.program.command = {"train"};
  spec.program.elastic.emplace();
  return spec;
}

/// On two GPUs from 1000 s on; stopped at 1100 s.
lease_record stopped_lease() {
  lease_record l;
  l.granted.lease = 7;
  l.granted.at_s = 1000;
  l.granted.how.data_parallel = 2;
  l.granted.parts = {{0, 1, {0, 1}}};
  l.revoked = true;
  l.revoked_s = 1100;
  l.outcome = lease_outcome::preempted;
  l.program = program_end{40, false, 6.0, 2.0, 40};
  return l;
}

}  // namespace

TEST_CASE("a stopped attempt leaves its start, its save, its rate and no lost iteration") {
  elastic_record r;
  add_attempt(r, elastic_spec(), stopped_lease(), "A40", 1103, 40);
  CHECK(r.costs.starts_s == std::vector{6.0});
  CHECK(r.costs.saves_s == std::vector{3.0});
  CHECK(r.costs.rates == std::vector{program_rate{"A40", 2, 2, 4}});
  CHECK(r.stops == 1);
  CHECK(r.lost_iterations == 0);
  CHECK(r.stopped_at_s == 1100);
  // The next one begins its first iteration at 1120 + 6 s and takes 2 s for it.
  auto next = stopped_lease();
  next.granted.at_s = 1120;
  next.revoked_s = 1200;
  add_attempt(r, elastic_spec(), next, "A40", 1203, 60);
  CHECK(r.pause_s == Approx(28));
}

TEST_CASE("an attempt that is killed measures no save, and loses what it had not saved") {
  elastic_record r;
  auto l = stopped_lease();
  l.program->saved = 30;
  add_attempt(r, elastic_spec(), l, "A40", 1160, 30);
  CHECK(r.costs.saves_s.empty());
  CHECK(r.lost_iterations == 10);
  l.revoked_s.reset();
  l.outcome = lease_outcome::lost;
  add_attempt(r, elastic_spec(), l, "", 1160, 30);
  CHECK(r.stops == 1);
  CHECK(r.lost_iterations == 20);
  CHECK(r.costs.rates.size() == 1);  // GPUs of several types have no rate
}

TEST_CASE("the newest five starts are kept") {
  elastic_record r;
  for (int i = 1; i <= 7; ++i) {
    auto l = stopped_lease();
    l.program->start_s = i;
    add_attempt(r, elastic_spec(), l, "A40", 1103, 40);
  }
  CHECK(r.costs.starts_s == std::vector<double>{3, 4, 5, 6, 7});
}

TEST_CASE("a start is measured once the time of a step is known, and late reports are corrected") {
  start_times t;
  const auto l = stopped_lease().granted;
  const auto report = [&](std::uint64_t iteration, double step_s, double now_s) {
    program_progress p;
    p.iteration = iteration;
    p.resumed = 30;
    p.step_s = step_s;
    t.on_report(l, 20, p, now_s);
    return t.of(l.lease);
  };
  CHECK_FALSE(report(30, 0, 1005));
  CHECK_FALSE(report(33, 0, 1012));
  CHECK(report(40, 2, 1026) == 1012 - 1000 - 3 * 2);
  CHECK(report(50, 9, 1050) == 6.0);  // the first one counts
  t.forget(l.lease);
  CHECK_FALSE(t.of(l.lease));
}

TEST_CASE("status has a measured rate in place of the job file's for the same GPUs") {
  const auto c = harness::small_cluster();
  const ledger book{*c};
  auto spec = elastic_spec();
  spec.program.elastic->rates = {{"A40", 2, 0, 9}, {"A40", 1, 0, 5}};
  job_record j;
  j.elastic.emplace();
  add_attempt(*j.elastic, spec, stopped_lease(), "A40", 1103, 40);
  j.spec = shared_value{spec};
  const auto s = elastic_status_of(*c, book, j, nullptr);
  REQUIRE(s.rates.size() == 2);
  CHECK(s.rates[0].measured.samples_per_s == 4);
  CHECK(s.rates[1].measured.samples_per_s == 5);
  CHECK(s.rates[0].estimated_samples_per_s > 0);
  CHECK(s.start_s == 6.0);
  CHECK(s.save_s == 3.0);
  CHECK(s.world_size == 0);
}

TEST_CASE("a program goes on from what it had saved while it ran, unless its end says otherwise") {
  using namespace troupe::actors::tests;
  for (const bool says : {false, true}) {
    union_ledger t;
    job_accepted accepted{1, 0, 1, elastic_spec(), ""};
    REQUIRE(t.say(accepted));
    REQUIRE_FALSE(t.say(program_saved{1, 40}));  // it does not run
    REQUIRE(t.say(grant_of(1, 1, {{0, 1, {0}}})));
    REQUIRE(t.say(program_saved{1, 40}));
    REQUIRE(t.say(program_saved{1, 60}));
    part_ended end{1, 0, 5, lease_outcome::lost, 0, 0, "node a was lost"};
    if (says) end.program = program_end{70, false, {}, {}, 75};
    REQUIRE(t.say(end));
    CHECK(t.state(1) == job_state::waiting);
    CHECK(t.job(1).progress.iterations_done == (says ? 70 : 60));
  }
}
