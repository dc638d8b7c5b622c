#include "actors/training/trainer_fixture.hpp"

// A trainer whose stages have peers: groups of their devices, and their reports.

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;

namespace {

stage_report joined(stage_report r, std::uint32_t pipeline = 0) {
  r.name.pipeline = pipeline;
  r.joined = true;
  return r;
}

stage_report refused(stage_report r, std::uint32_t pipeline, const std::string& why) {
  r.name.pipeline = pipeline;
  r.joined = false;
  r.fallback_reason = {reason::kind::invalid, why};
  return r;
}

}  // namespace

TEST_CASE("stages all-reduce through their hosts if the device of one of their peers cannot") {
  trainer_fixture t{two_stages(100)};
  for (const auto s : {0u, 1u}) {
    auto r = t.report_of(s, 0);
    r.communicator_id = {1, 2, static_cast<std::uint8_t>(s)};
    if (s == 1) r.fallback_reason = {reason::kind::unavailable, "no library"};
    t.receive(r);
  }
  const auto runs_until = [&](std::uint64_t until) {
    const auto runs = t.take<stage_run>();
    REQUIRE(runs.size() == 2);
    for (const auto& r : runs) {
      CHECK(r.until == until);
      CHECK(r.communicator_id ==
            (r.name.stage == 0 ? std::vector<std::uint8_t>{1, 2, 0} : std::vector<std::uint8_t>{}));
    }
  };
  runs_until(0);
  t.receive(joined(t.report_of(0, 0)));
  runs_until(20);
  CHECK(t.events ==
        std::vector<std::string>{"stage 1: falling back to host all-reduce: no library"});
  trainer_fixture both{two_stages(100)};
  for (const auto s : {0u, 1u}) {
    auto r = both.report_of(s, 0);
    r.fallback_reason = {reason::kind::unavailable, "no library"};
    both.receive(r);
  }
  CHECK(both.events.size() == 1);  // one stage reports it for all
}

TEST_CASE("no iteration begins before all peers have joined their group, or one has not") {
  auto job = two_stages(100);
  job.pipeline.data_parallel = 2;
  job.train->on_loss = "restart";  // all reports come from one host
  trainer_fixture t{job};
  for (const auto p : {0u, 1u})
    for (const auto s : {0u, 1u}) {
      auto r = t.report_of(s, 0);
      r.name.pipeline = p;
      r.communicator_id = {7};
      t.receive(r);
    }
  const auto asked = t.take<stage_run>();
  REQUIRE(asked.size() == 4);
  for (const auto& r : asked) {
    CHECK(r.until == 0);
    CHECK(r.communicator_id == std::vector<std::uint8_t>{7});
  }
  t.receive(joined(t.report_of(0, 0), 0));
  t.receive(joined(t.report_of(0, 0), 0));  // again
  t.receive(joined(t.report_of(0, 0), 1));
  t.receive(joined(t.report_of(1, 0), 0));
  CHECK(t.take<stage_run>().empty());
  const auto last = GENERATE(true, false);
  t.receive(last ? joined(t.report_of(1, 0), 1) : refused(t.report_of(1, 0), 1, "no route"));
  const auto runs = t.take<stage_run>();
  REQUIRE(runs.size() == 4);
  for (const auto& r : runs) {
    CHECK(r.until == 20);
    CHECK(r.communicator_id.empty() == (!last && r.name.stage == 1));
  }
  CHECK(t.events.size() == (last ? 0 : 1));
  if (!last) CHECK(t.events[0] == "stage 1: falling back to host all-reduce: no route");
}

TEST_CASE("a training that is stopped while its devices join has nothing to lose") {
  trainer_fixture t{two_stages(100)};
  for (const auto s : {0u, 1u}) {
    auto r = t.report_of(s, 0);
    r.communicator_id = {7};
    t.receive(r);
  }
  t.stop();
  t.reports_at_end();
  REQUIRE(t.over());
  CHECK(t.over()->how == part_report::state::stopped);
}

TEST_CASE("of several pipelines the slowest stage counts, and the mean of their losses") {
  auto job = two_stages(100);
  job.pipeline.data_parallel = 2;
  job.train->on_loss = "restart";  // all reports come from one host
  trainer_fixture t{job};
  REQUIRE(t.take<stage_setup>().size() == 4);
  const auto receive_all = [&](std::uint64_t iteration,
                               const std::function<void(stage_report&)>& f) {
    for (const auto p : {0u, 1u})
      for (const auto s : {0u, 1u}) {
        auto r = t.report_of(s, iteration);
        r.name.pipeline = p;
        f(r);
        t.receive(r);
      }
  };
  receive_all(0, [](stage_report& r) {
    r.communicator_id = {static_cast<std::uint8_t>(10 * r.name.pipeline + r.name.stage)};
    if (r.name == stage_name{lease, 1, 0})
      r.fallback_reason = {reason::kind::unavailable, "no library"};
  });
  const auto runs = t.take<stage_run>();
  REQUIRE(runs.size() == 4);
  for (const auto& r : runs)
    CHECK(r.communicator_id ==
          (r.name.stage == 0 ? std::vector<std::uint8_t>{} : std::vector<std::uint8_t>{1}));
  t.receive(joined(t.report_of(1, 0), 0));
  CHECK(t.take<stage_run>().empty());
  t.receive(joined(t.report_of(1, 0), 1));
  CHECK(t.take<stage_run>().size() == 4);
  CHECK(t.events ==
        std::vector<std::string>{"stage 0: falling back to host all-reduce: no library"});
  receive_all(1, [](stage_report& r) {
    const auto p = r.name.pipeline, s = r.name.stage;
    r.begin_s = 10;
    r.end_s = 12;
    r.loss = s == 1 ? 3 + 2 * p : 0;
    r.squared_norm = p == 0 ? 8 : 1000;  // peers have the same gradients
    r.max_in_flight = 1 + p + 2 * s;
    r.measured.forward_s = 1 + p + 10 * s;
    r.measured.backward_s = 5 - p + 10 * s;
  });
  const auto r = t.newest();
  CHECK(r.pipelines == 2);
  REQUIRE(r.iterations.size() == 1);
  CHECK(r.iterations[0].loss == 4);
  CHECK(r.iterations[0].gradient_norm == 4);
  CHECK(r.max_in_flight == std::vector<std::uint32_t>{2, 4});
  REQUIRE(r.measured.size() == 2);
  CHECK(r.measured[0].forward_s == 2);
  CHECK(r.measured[0].backward_s == 5);
  CHECK(r.measured[1].forward_s == 12);
  CHECK(r.measured[1].backward_s == 15);
}

TEST_CASE("a pipeline's loss counts by its share of the micro-batches") {
  auto job = two_stages(100);
  job.model = harness::gpt2(12, 256, 8);
  job.pipeline = {};
  job.pipeline.groups = {{1, 3, {{"A100-40GB", 24, {}, "dc1"}}}, {1, 1, {{"A40", 24, {}, "dc2"}}}};
  job.train->on_loss = "restart";  // all reports come from one host
  trainer_fixture t{job};
  const auto setups = t.take<stage_setup>();
  REQUIRE(setups.size() == 2);
  for (const auto& s : setups) CHECK((s.share == batch_share{s.name.pipeline == 0 ? 0U : 3U, 4}));
  const auto receive_all = [&](std::uint64_t iteration, std::vector<double> losses) {
    for (const auto p : {0u, 1u}) {
      auto r = t.report_of(0, iteration, losses[p]);
      r.name.pipeline = p;
      t.receive(r);
    }
  };
  receive_all(0, {0, 0});
  receive_all(1, {2, 6});
  const auto r = t.newest();
  REQUIRE(r.iterations.size() == 1);
  CHECK(r.iterations[0].loss == 3);  // 3/4 of 2 and 1/4 of 6
}
