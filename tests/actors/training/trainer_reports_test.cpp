#include "actors/training/trainer_fixture.hpp"

#include <algorithm>
#include <cmath>

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;
using Catch::Detail::Approx;

namespace {

std::size_t of_stage(const std::vector<stage_run>& all, std::uint32_t s) {
  return static_cast<std::size_t>(
      std::count_if(all.begin(), all.end(), [&](const auto& r) { return r.name.stage == s; }));
}

/// A stage's report with everything in it.
stage_report full_report(const trainer_fixture& t, std::uint32_t s, std::uint64_t iteration,
                         double begin_s, double end_s) {
  auto r = t.report_of(s, iteration, s * 0.5);
  r.begin_s = begin_s;
  r.end_s = end_s;
  r.busy_s = 1 + s;
  r.squared_norm = 8 + s;
  r.sent_bytes = 100;
  r.max_in_flight = 3 - s;
  r.measured.forward_s = 1 + s;
  r.measured.recompute_s = 2;
  r.measured.backward_s = 3;
  r.measured.update_s = 4;
  r.measured.gradients_s = 5;
  r.measured.wan_s = 6;
  r.measured.activation_bytes = 7;
  r.measured.gradient_bytes = 8;
  r.measured.tied_bytes = 9;
  return r;
}

}  // namespace

TEST_CASE("an iteration's figures combine the reports of all its stages") {
  trainer_fixture t{two_stages(100)};
  t.begin();
  for (const auto s : {1u, 0u}) t.receive(full_report(t, s, 1, 10.5 - s, 12 + s));
  for (const auto s : {0u, 1u}) t.receive(full_report(t, s, 2, 12.5 - s, 14 + s));
  const auto r = t.newest();
  CHECK(r.lease == lease);
  CHECK(r.job == 1);
  CHECK(r.schedule == "varuna");
  CHECK(r.device == "sim");
  CHECK(r.stages == 2);
  CHECK(r.pipelines == 1);
  CHECK(r.microbatches == 2);
  CHECK(r.tensor_parallel == 1);
  CHECK(r.wan_bytes == 400);
  CHECK(r.max_in_flight == std::vector<std::uint32_t>{3, 2});
  CHECK(r.planned_s > 0);
  REQUIRE(r.iterations.size() == 2);
  const auto& first = r.iterations[0];
  CHECK(first.iteration == 1);
  CHECK(first.loss == 0.5);
  CHECK(first.gradient_norm == Approx(std::sqrt(17.0)));
  CHECK(first.busy_s == 3);
  CHECK(first.end_s - first.begin_s == Approx(13 - 9.5));
  // The second begins before the first has ended: it counts from there.
  CHECK(r.iterations[1].begin_s == Approx(first.end_s));
  CHECK(r.iterations[1].end_s - first.end_s == Approx(2));
  // Two iterations of 4 x 1024 tokens in 5.5 s.
  CHECK(r.tokens_per_s == Approx(2 * 4 * 1024 / 5.5));
  REQUIRE(r.measured.size() == 2);
  CHECK(r.measured[0].forward_s == 1);
  CHECK(r.measured[1].forward_s == 2);
  CHECK(r.measured[1].recompute_s == 2);
  CHECK(r.measured[1].backward_s == 3);
  CHECK(r.measured[1].update_s == 4);
  CHECK(r.measured[1].gradients_s == 5);
  CHECK(r.measured[1].wan_s == 6);
  CHECK(r.measured[1].activation_bytes == 7);
  CHECK(r.measured[1].gradient_bytes == 8);
  CHECK(r.measured[1].tied_bytes == 9);
}

TEST_CASE(
    "what a program's workers report is summed up over stages, iterations and micro-batches") {
  trainer_fixture t{two_stages(100)};
  const auto report = [&](std::uint32_t s, std::uint64_t iteration, worker_report w) {
    auto r = t.report_of(s, iteration);
    r.worker = std::move(w);
    t.receive(r);
  };
  report(0, 0, {"torch 2.0", 3.5, 0, false, {}});
  report(1, 0, {"torch 2.0", 2.5, 0, false, {}});
  CHECK(t.newest().program->peak_bytes == std::vector<std::uint64_t>{0, 0});
  report(0, 1, {"", 0, 100, false, {}});
  report(1, 1, {"", 0, 300, false, {{"accuracy", 3, 4}, {"words", 10, 1}}});
  report(0, 2, {"", 0, 200, true, {}});
  report(1, 2, {"", 0, 250, true, {}});
  const auto r = t.newest();
  REQUIRE(r.program);
  CHECK(r.program->engine == "torch 2.0");
  CHECK(r.program->worker_ready_s == 3.5);
  CHECK(r.program->peak_bytes == std::vector<std::uint64_t>{200, 300});
  CHECK(r.program->skipped_updates == 1);
  REQUIRE(r.iterations.size() == 2);
  REQUIRE(r.iterations[0].program);
  const auto& values = r.iterations[0].program->values;
  REQUIRE(values.size() == 2);
  CHECK(values[0].name == "accuracy");
  CHECK(values[0].sum / values[0].weight == 0.75);
  CHECK_FALSE(r.iterations[0].program->skipped);
  CHECK(r.iterations[1].program->skipped);
}

TEST_CASE("a loss that is not finite ends the training, unless its update was skipped") {
  for (const bool skipped : {true, false}) {
    trainer_fixture t{two_stages(100)};
    t.begin();
    for (const auto s : {0u, 1u}) {
      auto r = t.report_of(s, 1, s == 0 ? 0 : std::nan(""));
      r.worker.emplace().skipped = skipped;
      t.receive(r);
    }
    const auto r = t.newest();
    CHECK(r.iterations.size() == (skipped ? 1 : 0));
    CHECK(r.events.empty() == skipped);
  }
}

TEST_CASE("the controller keeps an iteration's first 16 values") {
  trainer_fixture t{two_stages(100)};
  t.begin();
  t.receive(t.report_of(0, 1));
  auto last = t.report_of(1, 1);
  last.worker.emplace().values.assign(20, {"v", 1, 1});
  for (int i = 0; i < 20; ++i) last.worker->values[i].name += std::to_string(i);
  t.receive(last);
  CHECK(t.newest().iterations.at(0).program->values.size() == 16);
}

TEST_CASE("iterations of a job in slots are timed one by one, even if they overlap") {
  auto job = two_stages(100);
  job.slots.emplace();
  trainer_fixture t{job};
  t.begin();
  for (const auto s : {0u, 1u}) t.receive(full_report(t, s, 1, 10, 12));
  for (const auto s : {0u, 1u}) t.receive(full_report(t, s, 2, 11, 14));
  const auto all = t.newest().iterations;
  REQUIRE(all.size() == 2);
  CHECK(all[1].end_s - all[1].begin_s == Approx(3));
}

TEST_CASE("stages that are not ready are set up again each second, and run once all are ready") {
  auto job = two_stages(100);
  job.train->replan_every = 0;
  trainer_fixture t{job};
  CHECK(t.take<stage_setup>().size() == 2);
  t.advance(1);
  CHECK(t.take<stage_setup>().size() == 2);
  t.receive(t.report_of(0, 0));
  CHECK(t.take<stage_run>().empty());
  t.advance(1);
  CHECK(t.take<stage_setup>().size() == 1);
  t.receive(t.report_of(1, 0));
  const auto runs = t.take<stage_run>();
  REQUIRE(runs.size() == 2);
  for (const auto& r : runs) {
    CHECK(r.until == 100);
    CHECK(r.incarnation == incarnation);
    CHECK_FALSE(r.halt);
    CHECK(r.save == 0);
    CHECK(r.order.empty());
  }
  t.receive(t.report_of(0, 0));  // again
  CHECK(t.take<stage_run>().empty());
  t.advance(3);
  CHECK(t.take<stage_setup>().empty());
}

TEST_CASE("stages are told to run 100 iterations at a time, at the end the remaining ones") {
  auto job = two_stages(150);
  job.train->replan_every = 0;
  trainer_fixture t{job};
  t.begin();
  REQUIRE(t.last<stage_run>().until == 100);
  for (std::uint64_t i = 1; i < 100; ++i) t.both(i);
  for (const auto& r : t.take<stage_run>()) CHECK(r.until == 100);
  t.both(100);
  auto runs = t.take<stage_run>();
  REQUIRE(runs.size() >= 2);
  CHECK(runs.back().until == 150);
  CHECK(runs.back().acknowledged == 100);
  for (std::uint64_t i = 101; i <= 150; ++i) t.both(i);
  for (const auto& r : t.take<stage_run>()) CHECK(r.until == 150);
  CHECK(t.reports_at_end().size() == 150);
  REQUIRE(t.over());
  CHECK(t.over()->how == part_report::state::succeeded);
  CHECK(t.over()->trainer);
  CHECK(t.over()->detail.empty());
}

TEST_CASE("a window is as short as the re-planning interval") {
  auto job = two_stages(150);
  job.train->replan_every = 8;
  trainer_fixture t{job};
  t.begin();
  CHECK(t.last<stage_run>().until == 8);
  for (std::uint64_t i = 1; i <= 8; ++i) t.both(i);
  CHECK(t.last<stage_run>().until == 16);
}

TEST_CASE("a stage with iterations left is told again after a second of silence") {
  trainer_fixture t{two_stages(2)};
  t.begin();
  t.receive(t.report_of(0, 1));
  t.receive(t.report_of(0, 2));
  t.take<stage_run>();
  t.advance(2.5);
  const auto runs = t.take<stage_run>();
  CHECK(of_stage(runs, 1) > of_stage(runs, 0));  // which is only asked for its clock
  CHECK(runs.back().name.stage == 1);
  CHECK(runs.back().acknowledged == 0);
}

TEST_CASE("a stage is not told again after exactly one second of silence") {
  trainer_fixture t{two_stages(2)};
  t.begin();
  t.receive(t.report_of(0, 1));
  t.advance(std::ceil(t.now_s()) - t.now_s());  // the trainer looks every second
  t.receive(t.report_of(0, 2));
  t.take<stage_run>();
  t.advance(1.2);
  auto runs = t.take<stage_run>();
  CHECK(of_stage(runs, 1) == of_stage(runs, 0));
  t.advance(1);
  runs = t.take<stage_run>();
  CHECK(of_stage(runs, 1) > of_stage(runs, 0));
}

TEST_CASE("reports of other incarnations or of unknown stages change nothing") {
  trainer_fixture t{two_stages(100)};
  t.begin();
  for (const int what : {0, 1, 2}) {
    for (const auto s : {0u, 1u}) {
      auto r = t.report_of(s, 1);
      if (what == 0) r.incarnation = incarnation + 1;
      if (what == 1) r.name.pipeline = 1;
      if (what == 2) r.name.stage += 2;
      r.why = {reason::kind::invalid, "a lie"};
      t.receive(r);
    }
  }
  t.both(2);  // an iteration is missing
  t.both(1);
  t.both(1);
  const auto r = t.newest();
  CHECK(r.iterations.size() == 1);
  CHECK(r.events.empty());
  CHECK_FALSE(t.over());
}

TEST_CASE("a stage's failure fails the job only if another attempt cannot help") {
  const auto after = [](reason::kind why, bool progress, std::uint64_t reached = 0) {
    trainer_fixture t{two_stages(100), reached};
    t.begin();
    if (progress) t.both(1);
    auto r = t.report_of(1, 1);
    r.why = {why, "something is wrong"};
    t.receive(r);
    t.reports_at_end();
    REQUIRE(t.over());
    CHECK(t.over()->detail == "stage 1 of pipeline 0 on node a-0: something is wrong");
    return t.over()->how;
  };
  using enum part_report::state;
  CHECK(after(reason::kind::invalid, true) == failed);
  CHECK(after(reason::kind::stale, false) == failed);  // another attempt would not help
  CHECK(after(reason::kind::device_lost, false) == stopped);
  CHECK(after(reason::kind::out_of_memory, false) == out_of_memory);
  CHECK(after(reason::kind::out_of_memory, true) == out_of_memory);
  CHECK(after(reason::kind::unavailable, false) == failed);
  CHECK(after(reason::kind::unavailable, true) == stopped);
  CHECK(after(reason::kind::unavailable, true, 3) == failed);  // an earlier try got further
}

TEST_CASE("a trainer that hears of no stage for long gives up, and says what is lost") {
  trainer_fixture t{two_stages(100)};
  t.begin();
  for (const auto s : {0u, 1u}) t.receive(full_report(t, s, 1, 10, 12));
  // 20 s, and 20 times the longest iteration, and two that were planned.
  t.advance(58);
  t.take<training_report>();
  t.advance(1);
  const auto planned = t.last<training_report>().planned_s;
  REQUIRE(planned < 0.4);
  CHECK(t.events.empty());
  t.advance(3);
  REQUIRE(t.events.size() == 1);
  CHECK(t.events[0].starts_with("no report from any stage for 6"));
  CHECK(t.events[0].ends_with("s; 1 iterations since the last checkpoint are lost"));
  t.reports_at_end();
  REQUIRE(t.over());
  CHECK(t.over()->how == part_report::state::stopped);
}

TEST_CASE("stages that are not ready are waited for longer: they may be starting") {
  trainer_fixture t{two_stages(100)};
  t.receive(t.report_of(0, 0));
  t.advance(27);  // 20 s, and 4 times what starting takes: 2 s
  CHECK(t.events.empty());
  t.advance(4);
  REQUIRE(t.events.size() == 1);
  CHECK(t.events[0].starts_with("no report from any stage"));
}

TEST_CASE("stages that answer without progress are given up, those being set up much later") {
  const auto gives_up_after = [](bool progress, bool starting) {
    trainer_fixture t{two_stages(100)};
    if (!starting) t.begin();
    if (progress)
      for (const auto s : {0u, 1u}) t.receive(full_report(t, s, 1, 10, 11));
    const double begun_s = t.now_s();
    const auto gave_up = [&] {
      return std::any_of(t.events.begin(), t.events.end(), [](const auto& e) {
        return e.starts_with("no stage made progress for ");
      });
    };
    while (!gave_up() && t.now_s() < begun_s + 5000) {
      auto r = t.report_of(0, progress ? 1 : 0);
      r.starting = starting;
      t.receive(r);
      t.advance(5);
    }
    return t.now_s() - begun_s;
  };
  const double running = gives_up_after(true, false), first = gives_up_after(false, false),
               set_up = gives_up_after(false, true);
  CHECK(running > 60 + 20);
  CHECK(running < 60 + 20 + 15);
  CHECK(first > 600);
  CHECK(first < 630);
  CHECK(set_up > 3600);
  CHECK(set_up < 3650);
}

TEST_CASE("a stage that takes long to start is announced once") {
  trainer_fixture t{two_stages(100)};
  auto r = t.report_of(1, 0);
  r.starting = true;
  const auto begun_s = t.now_s();
  while (t.now_s() < begun_s + 9) {
    t.receive(r);
    t.advance(1);
  }
  CHECK(t.events.empty());
  for (int i = 0; i < 5; ++i) {
    t.receive(r);
    t.advance(1);
  }
  REQUIRE(t.events.size() == 1);
  CHECK(t.events[0].starts_with("stage 1 of pipeline 0 on node a-0 is still being set up"));
}

TEST_CASE("a training report is repeated until it is acknowledged, then continues where it ended") {
  trainer_fixture t{two_stages(100)};
  t.begin();
  t.both(1);
  t.advance(2);
  const auto reports = t.take<training_report>();
  REQUIRE(reports.size() >= 2);
  CHECK(reports.back().iterations.size() == 1);
  CHECK(reports.back().sequence > reports.front().sequence);
  t.both(2);
  t.acknowledge(reports.back().sequence);
  t.advance(1);
  const auto next = t.last<training_report>();
  REQUIRE(next.iterations.size() == 1);
  CHECK(next.iterations[0].iteration == 2);
  t.acknowledge(next.sequence + 7);  // never sent
  t.acknowledge(1);                  // long ago
  t.advance(1);
  CHECK(t.last<training_report>().iterations.size() == 1);
}

TEST_CASE("a training report has at most 256 iterations, and the rest follow in the next one") {
  trainer_fixture t{two_stages(1000)};
  t.begin();
  for (std::uint64_t i = 1; i <= 300; ++i) t.both(i);
  t.advance(1);
  const auto first = t.last<training_report>();
  CHECK(first.iterations.size() == 256);
  CHECK(first.iterations.front().iteration == 1);
  t.acknowledge(first.sequence);
  t.advance(1);
  const auto rest = t.last<training_report>();
  CHECK(rest.iterations.front().iteration == 257);
  CHECK(rest.iterations.size() == 44);
}

TEST_CASE("a training without iterations, or without a checkpoint, stops at once") {
  {
    trainer_fixture t{two_stages(100)};
    t.receive(t.report_of(0, 0));
    t.stop();
    t.reports_at_end();
    REQUIRE(t.over());
    CHECK(t.over()->how == part_report::state::stopped);
    CHECK(t.over()->detail == "stopped before its first iteration");
  }
  auto job = two_stages(100);
  job.train->device = "cpu";
  trainer_fixture t{job};
  t.begin();
  t.both(1);
  t.stop();
  t.stop();
  t.reports_at_end();
  REQUIRE(t.over());
  CHECK(t.over()->detail == "stopped; the job has no checkpoint, so 1 iterations are lost");
  CHECK(t.events.size() == 1);
}

TEST_CASE("when stages halt, the furthest one sets the last iteration, which all save") {
  trainer_fixture t{two_stages(100)};
  t.begin();
  t.both(1);
  t.take<stage_run>();
  t.stop();
  auto runs = t.take<stage_run>();
  REQUIRE(runs.size() == 2);
  for (const auto& r : runs) CHECK((r.halt && r.save == 0));
  auto halted = t.report_of(0, 1);
  halted.halts_at = 2;
  t.receive(halted);
  CHECK(t.take<stage_run>().empty());
  halted = t.report_of(1, 1);
  halted.halts_at = 3;
  t.receive(halted);
  runs = t.take<stage_run>();
  REQUIRE(runs.size() == 2);
  for (const auto& r : runs) {
    CHECK(r.halt);
    CHECK(r.save == 3);
    CHECK(r.until == 3);
  }
  halted.halts_at = 9;  // too late
  t.receive(halted);
  CHECK(t.take<stage_run>().empty());
}
