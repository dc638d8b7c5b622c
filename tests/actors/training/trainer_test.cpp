#include "actors/training/trainer_fixture.hpp"
#include "actors/training/written_checkpoint.hpp"
#include "gpu/model/checkpoint_fence.hpp"

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;

TEST_CASE("an iteration that a stage saves while it is told to halt keeps its loss") {
  trainer_fixture t{two_stages(100)};
  t.begin();
  for (const auto s : {0u, 1u}) t.receive(t.report_of(s, 1, s * 0.9));
  t.receive(t.report_of(0, 2));
  t.stop();
  // Both have finished iteration 2. The last stage is saving it, and has not reported it yet.
  for (const auto s : {0u, 1u}) {
    auto halted = t.report_of(s, 2);
    halted.halts_at = 3 - s;
    t.receive(halted);
  }
  auto saved = t.report_of(1, 2, 0.8);
  t.receive(saved);
  for (const auto s : {0u, 1u}) {
    auto last = t.report_of(s, 3, s * 0.7);
    last.saved = 3;
    t.receive(last);
  }
  const auto reported = t.reports_at_end();
  REQUIRE(reported.size() == 3);
  CHECK(reported[0].loss == 0.9);
  CHECK(reported[1].loss == 0.8);
  CHECK(reported[2].loss == 0.7);
  REQUIRE(t.over());
  CHECK(t.over()->how == part_report::state::stopped);
  CHECK(troupe::test::has_facts(t.over()->detail, {"iteration 3 of 100", "no iteration"}));
}

TEST_CASE("a trainer reports the saved iterations that its predecessor could not report") {
  const test::scratch directory;
  auto job = two_stages(7);
  job.train->device = "cpu";
  job.train->checkpoint = directory.path();
  job.model = tiny_model();
  {
    curve_file curve{directory.path(), lease - 1};
    REQUIRE(gpu::take_fence(directory.path(), lease - 1));
    REQUIRE(curve.resume(0, 0));
    for (std::uint64_t i = 1; i <= 7; ++i) curve.add({i, 1.0 / static_cast<double>(i), 0, 0, 1, 0});
    REQUIRE(curve.write());
    write_checkpoint(directory.path(), job.model, 5);
  }
  trainer_fixture t{job, 3};  // the controller knows three
  t.both(5);
  for (const auto s : {0u, 1u}) t.receive(t.report_of(s, 6, s * 0.5));
  const auto reported = t.reports_at_end();
  REQUIRE(reported.size() == 3);
  CHECK(reported[0].iteration == 4);
  CHECK(reported[0].loss == 1.0 / 4);
  CHECK(reported[1].loss == 1.0 / 5);
  CHECK(reported[2].loss == 0.5);
}

TEST_CASE("a checkpoint is complete once its last stage has reported its iteration") {
  trainer_fixture t{two_stages(100)};
  t.begin();
  // The first stage's reports of iterations 1 and 2 are lost, and come later.
  for (const std::uint64_t i : {1, 2}) {
    auto r = t.report_of(1, i);
    if (i == 2) r.saved = 2;
    t.receive(r);
  }
  auto later = t.report_of(0, 2);
  later.saved = 2;
  t.receive(later);
  for (const std::uint64_t i : {1, 2}) {
    CHECK(t.newest().saved == 0);
    t.receive(t.report_of(0, i));
  }
  CHECK(t.newest().saved == 2);
}
