#include <fstream>
#include <limits>

#include "actors/training/trainer/evaluations.hpp"
#include "actors/training/trainer_fixture.hpp"
#include "actors/training/written_checkpoint.hpp"
#include "gpu/model/checkpoint_fence.hpp"
#include "planners/cost/batch_split.hpp"

// A trainer that resumes, saves and ends.

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;
using Catch::Detail::Approx;

namespace {

bool says(const std::string& sentence, const std::string& what) {
  return sentence.find(what) != std::string::npos;
}

/// A report of an iteration that began and ended then.
stage_report timed(const trainer_fixture& t, std::uint32_t s, std::uint64_t iteration,
                   double begin_s, double end_s) {
  auto r = t.report_of(s, iteration);
  r.begin_s = begin_s;
  r.end_s = end_s;
  return r;
}

job_spec saved_in(const troupe::test::scratch& directory, std::uint64_t count) {
  auto job = two_stages(count);
  job.train->device = "cpu";
  job.train->checkpoint = directory.path();
  return job;
}

/// With a target of 2.0 for its held-out loss, which is known after every fourth iteration.
job_spec with_target(std::uint64_t count) {
  auto job = two_stages(count);
  job.train->program.emplace().arguments =
      R"({"base":"b","data":"d","evaluate_every":4,"held_out_rows":9})";
  job.train->target_loss = 2.0;
  return job;
}

/// Both stages have done all iterations up to this one, which is evaluated.
void evaluate(trainer_fixture& t, std::uint64_t iteration, double loss) {
  for (auto i = iteration - 3; i < iteration; ++i) t.both(i);
  t.receive(t.report_of(0, iteration));
  auto r = t.report_of(1, iteration);
  r.worker.emplace().values = {{held_out_value, 9 * loss, 9}};
  t.receive(r);
}

}  // namespace

TEST_CASE("a training ends well at the evaluation that reaches its target, when all stages know") {
  trainer_fixture t{with_target(20)};
  t.begin();
  for (const auto& r : t.take<stage_run>()) CHECK(r.until == 4);
  evaluate(t, 4, 2.001);
  for (const auto& r : t.take<stage_run>()) {
    CHECK(r.until == 8);
    CHECK(r.save == 0);
  }
  evaluate(t, 8, 2.0);
  auto runs = t.take<stage_run>();
  REQUIRE(runs.size() == 2);
  for (const auto& r : runs) {
    CHECK(r.until == 8);
    CHECK(r.save == 8);
    CHECK_FALSE(r.halt);
  }
  REQUIRE(t.events.size() == 1);
  CHECK(t.events[0] ==
        "the held-out loss of 2 is at most the target of 2: the training ends after iteration 8 of "
        "20");
  auto knows = t.report_of(0, 8);
  knows.halts_at = 8;
  t.receive(knows);
  CHECK(t.reports_at_end().size() == 8);
  CHECK_FALSE(t.over());
  REQUIRE_FALSE(t.take<stage_run>().empty());  // repeated for the other one
  knows.name.stage = 1;
  t.receive(knows);
  t.reports_at_end();
  REQUIRE(t.over());
  CHECK(t.over()->how == part_report::state::succeeded);
}

TEST_CASE("a training that stops at its target is stopped, and without one windows are long") {
  trainer_fixture t{with_target(20)};
  t.begin();
  t.stop();
  evaluate(t, 4, 1.0);
  for (const auto& r : t.take<stage_run>()) CHECK((r.halt || r.save == 0));
  auto job = with_target(20);
  job.train->target_loss.reset();
  trainer_fixture none{job};
  none.begin();
  for (const auto& r : none.take<stage_run>()) CHECK(r.until == 20);
  evaluate(none, 4, 1.0);
  CHECK(none.events.empty());
}

TEST_CASE("a training that begins says nothing, one that resumes says what that costs") {
  CHECK(trainer_fixture{two_stages(100)}.events.empty());
  const trainer_fixture resumed{two_stages(100), 10, [](train_order& o) {
                                  o.iterations_done = 7;
                                  o.median_iteration_s = 2.5;
                                }};
  REQUIRE(resumed.events.size() == 1);
  auto text = resumed.events[0];
  CHECK(
      text.starts_with("resumed after iteration 7 of 100, with 2 stages in 1 pipelines on 2 GPUs; "
                       "3 iterations since are repeated (7.5 s lost); planned iteration time "));
  CHECK(text.ends_with(" s, 2.5 s before"));
  const trainer_fixture nothing_lost{two_stages(100), 7,
                                     [](train_order& o) { o.iterations_done = 7; }};
  REQUIRE(nothing_lost.events.size() == 1);
  text = nothing_lost.events[0];
  CHECK_FALSE(says(text, "repeated"));
  CHECK_FALSE(says(text, "before"));
  const trainer_fixture from_the_start{two_stages(100), 3};
  REQUIRE(from_the_start.events.size() == 1);
  CHECK(says(from_the_start.events[0], "resumed after iteration 0 of 100"));
}

TEST_CASE("a training that resumes counts from there, its speed too") {
  trainer_fixture t{two_stages(100), 0, [](train_order& o) { o.iterations_done = 50; }};
  for (const auto& s : t.take<stage_setup>()) {
    CHECK(s.first_iteration == 50);
    CHECK(s.iterations == 100);
    CHECK(s.incarnation == incarnation);
  }
  t.both(50);
  for (const auto s : {0u, 1u}) t.receive(timed(t, s, 51, 10, 12));
  const auto r = t.newest();
  REQUIRE(r.iterations.size() == 1);
  CHECK(r.iterations[0].iteration == 51);
  CHECK(r.tokens_per_s == Approx(4 * 1024 / 2.0));
  CHECK(r.saved == 50);
}

TEST_CASE("the times of iterations are on the wall clock") {
  trainer_fixture t{two_stages(100)};
  REQUIRE(std::abs(t.wall_ahead_s()) > 1000);
  t.begin();
  for (const auto s : {0u, 1u}) t.receive(timed(t, s, 1, 10, 12));
  const auto r = t.newest();
  CHECK(r.iterations[0].begin_s == Approx(t.wall_ahead_s() + 10).margin(0.001));
  CHECK(r.iterations[0].end_s == Approx(t.wall_ahead_s() + 12).margin(0.001));
  CHECK(r.wan_utilization == 0);  // its stages are in one datacenter
  CHECK(r.planned_s > 0);
}

TEST_CASE("before its first iteration a training has no speed and uses no link") {
  trainer_fixture t{two_stages(100)};
  t.begin();
  const auto r = t.newest();
  CHECK(r.tokens_per_s == 0);
  CHECK(r.wan_utilization == 0);
  CHECK(r.wan_bytes == 0);
}

TEST_CASE("of its links a training uses what its bytes are of what they carry in that time") {
  auto job = two_stages(100);
  job.pipeline.stages_per_datacenter = 1;
  trainer_fixture t{job};
  const auto setups = t.take<stage_setup>();
  REQUIRE(setups.size() == 2);
  const auto c = harness::small_cluster();
  const auto site = [&](std::uint32_t s) {
    return c->nodes[node_of(setups[0].neighbours[s])].datacenter;
  };
  REQUIRE(site(0) != site(1));
  t.begin();
  for (const auto s : {0u, 1u}) {
    auto r = timed(t, s, 1, 10, 12);
    r.sent_bytes = 1'000'000;
    t.receive(r);
  }
  const double gbps = 2 * planners::link_between(*c, site(0), site(1), 0).gbps;
  CHECK(t.newest().wan_utilization == Approx(2'000'000 * 8e-9 / (gbps * 2)));
}

TEST_CASE("how long a stage has been starting is said with its node") {
  trainer_fixture t{two_stages(100)};
  auto r = t.report_of(1, 0);
  r.starting = true;
  t.advance(12.5);
  t.receive(r);
  REQUIRE(t.events.size() == 1);
  CHECK(says(t.events[0], "on node a-0 is still being set up, after 12.5 s"));
}

TEST_CASE("two hundred and fifty-six iterations are reported at once, and the next when heard") {
  trainer_fixture t{two_stages(1000)};
  t.begin();
  for (std::uint64_t i = 1; i < 256; ++i) t.both(i);
  t.advance(1.1);
  t.take<training_report>();
  t.both(256);
  CHECK(t.only<training_report>().iterations.size() == 256);
  for (std::uint64_t i = 257; i <= 600; ++i) t.both(i);
  t.advance(1.1);
  // More than a report's worth remains: the next one follows at once.
  t.acknowledge(t.last<training_report>().sequence);
  const auto next = t.only<training_report>();
  CHECK(next.iterations.front().iteration == 257);
  CHECK(next.iterations.size() == 256);
  t.acknowledge(next.sequence);
  CHECK(t.take<training_report>().empty());  // 88 remain: they may wait
  t.acknowledge(next.sequence + 100);
  CHECK(t.newest().iterations.size() == 88);
}

TEST_CASE("what a trainer lost since the last checkpoint is counted from there") {
  trainer_fixture t{two_stages(100)};
  t.begin();
  for (const std::uint64_t i : {1, 2, 3})
    for (const auto s : {0u, 1u}) {
      auto r = t.report_of(s, i);
      r.saved = i >= 2 ? 2 : 0;
      t.receive(r);
    }
  CHECK(t.newest().saved == 2);
  t.advance(40);
  REQUIRE(t.events.size() == 1);
  CHECK(says(t.events[0], "; 1 iterations since the last checkpoint are lost"));
}

TEST_CASE("a trainer waits for two planned iterations longer than twenty seconds") {
  auto job = two_stages(100);
  job.global_batch = 4096;
  job.pipeline.microbatches = 1024;
  trainer_fixture t{job};
  t.begin();
  const auto planned_s = t.newest().planned_s;
  REQUIRE(planned_s > 5);
  REQUIRE(planned_s < 200);
  t.advance(20 + 2 * planned_s - 4);
  CHECK(t.events.empty());
  t.advance(6);
  CHECK(t.events.size() == 1);
}

TEST_CASE("of a checkpoint the earliest stage counts") {
  trainer_fixture t{two_stages(100)};
  t.begin();
  for (const std::uint64_t i : {1, 2, 3})
    for (const auto s : {0u, 1u}) {
      auto r = t.report_of(s, i);
      r.saved = s == 0 ? i : i == 3 ? 2 : 0;
      t.receive(r);
      if (i < 3) CHECK(t.newest().saved == 0);
    }
  CHECK(t.newest().saved == 2);
}

TEST_CASE(
    "a checkpoint is complete when all stages have written its files, and reported that later") {
  trainer_fixture t{two_stages(100)};
  t.begin();
  for (const std::uint64_t i : {1, 2, 3, 4, 5}) t.both(i);
  const auto written = [&](std::uint32_t s, std::uint64_t iteration) {
    auto r = t.report_of(s, 0);
    r.saved = iteration;
    t.receive(r);
    return t.newest().saved;
  };
  // A stage that has taken over another one has not all files of that.
  CHECK(written(0, 2) == 0);
  CHECK(written(1, 3) == 0);
  CHECK(written(0, 4) == 0);
  CHECK(written(1, 4) == 4);
  CHECK(written(0, 5) == 4);
  CHECK(written(0, 5) == 4);
  CHECK(written(1, 5) == 5);
  CHECK(t.newest().iterations.size() == 5);  // none is counted by them
}

TEST_CASE("a training on devices is not over before it is saved, and fails if a file is missing") {
  const troupe::test::scratch directory;
  trainer_fixture t{saved_in(directory, 2)};
  t.begin();
  for (const std::uint64_t i : {1, 2}) t.both(i);
  t.reports_at_end();
  CHECK_FALSE(t.over());
  CHECK(std::filesystem::exists(directory.path("curve.csv")));
  for (const auto s : {0u, 1u}) {
    auto r = t.report_of(s, 2);
    r.saved = 2;
    t.receive(r);
  }
  t.reports_at_end();
  REQUIRE(t.over());
  CHECK(t.over()->how == part_report::state::failed);
  CHECK(says(t.over()->detail, ".safetensors: cannot be opened"));
}

TEST_CASE("a training that is over has written its timeline, or says why it could not") {
  const troupe::test::scratch directory;
  const auto end_with = [](const std::string& file) {
    auto job = two_stages(1);
    job.train->timeline = file;
    trainer_fixture t{job};
    t.begin();
    for (const auto s : {0u, 1u}) {
      auto r = t.report_of(s, 1);
      if (s == 1) r.tasks = {{0, 0, 1, 2}};
      t.receive(r);
    }
    t.reports_at_end();
    REQUIRE(t.over());
    CHECK(t.over()->how == part_report::state::succeeded);
    return t.events;
  };
  CHECK(end_with(directory.path("timeline.json")).empty());
  std::ifstream in{directory.path("timeline.json")};
  const std::string all{std::istreambuf_iterator<char>{in}, {}};
  CHECK(says(all, "\"pipeline 0 stage 1 (a-0)\""));
  CHECK_FALSE(says(all, "\"pipeline 0 stage 0 (a-0)\""));  // it has reported no tasks
  const auto events = end_with(directory.path("missing/timeline.json"));
  REQUIRE(events.size() == 1);
  CHECK(says(events[0], "the timeline cannot be written"));
  CHECK(end_with({}).empty());
}

TEST_CASE("a training whose directory has a newer lease fails: another attempt would not help") {
  const troupe::test::scratch directory;
  REQUIRE(gpu::take_fence(directory.path(), lease + 1));
  trainer_fixture t{saved_in(directory, 2)};
  t.reports_at_end();
  REQUIRE(t.over());
  CHECK(t.over()->how == part_report::state::failed);
  CHECK(t.take<stage_setup>().empty());
}

TEST_CASE("a directory that cannot be used is the job's failure") {
  const troupe::test::scratch directory;
  std::ofstream{directory.path("file")} << "";
  auto job = two_stages(2);
  job.train->device = "cpu";
  job.train->checkpoint = directory.path("file");
  trainer_fixture t{job};
  t.reports_at_end();
  REQUIRE(t.over());
  CHECK(t.over()->how == part_report::state::failed);
}

TEST_CASE("iterations that the controller has not asked after are not told again") {
  const troupe::test::scratch directory;
  {
    curve_file curve{directory.path(), lease - 1};
    REQUIRE(gpu::take_fence(directory.path(), lease - 1));
    REQUIRE(curve.resume(0, 0));
    for (std::uint64_t i = 1; i <= 5; ++i) curve.add({i, 1, 0, 0, 1, 0});
    REQUIRE(curve.write());
    write_checkpoint(directory.path(), tiny_model(), 5);
  }
  auto job = saved_in(directory, 7);
  job.model = tiny_model();
  trainer_fixture t{job};  // the controller knows none
  t.both(5);
  t.both(6);
  const auto reported = t.reports_at_end();
  REQUIRE(reported.size() == 1);
  CHECK(reported[0].iteration == 6);
}

TEST_CASE("a loss or gradient norm that is not finite ends the training with its iteration") {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN(),
                   infinity = std::numeric_limits<double>::infinity();
  const auto ends_with = [](double loss, double squared_norm) {
    trainer_fixture t{two_stages(100)};
    t.begin();
    t.both(1);
    for (const auto s : {0u, 1u}) {
      auto r = t.report_of(s, 2, s == 1 ? loss : 0);
      r.squared_norm = s == 0 ? squared_norm : 1;
      t.receive(r);
    }
    t.both(3);
    const auto reported = t.reports_at_end();
    REQUIRE(reported.size() == 1);  // and not the one with that number
    CHECK(reported[0].iteration == 1);
    REQUIRE(t.over());
    CHECK(t.over()->how == part_report::state::failed);  // another attempt would do the same
    CHECK(t.over()->word == end_word::diverged);
    CHECK(t.events == std::vector{t.over()->detail});
    return t.over()->detail;
  };
  CHECK(
      ends_with(nan, 1) ==
      "iteration 2: the loss is nan, expected a finite number; the learning rate may be too high");
  CHECK(says(ends_with(infinity, 1), "iteration 2: the loss is inf"));
  CHECK(says(ends_with(-infinity, nan), "iteration 2: the loss is -inf"));
  CHECK(says(ends_with(4, infinity), "iteration 2: the gradient norm is inf"));
  CHECK(says(ends_with(4, nan), "iteration 2: the gradient norm is nan"));
}

TEST_CASE("the checkpoint of an iteration whose loss is not finite is not completed") {
  const troupe::test::scratch directory;
  trainer_fixture t{saved_in(directory, 9)};
  t.begin();
  t.both(1);
  for (const auto s : {0u, 1u}) {
    auto r = t.report_of(s, 2, s == 1 ? std::numeric_limits<double>::infinity() : 0);
    r.saved = 2;
    t.receive(r);
  }
  t.reports_at_end();
  REQUIRE(t.over());
  // Completing it would fail otherwise: its files are not there.
  CHECK(says(t.over()->detail, "iteration 2: the loss is inf"));
  std::ifstream in{directory.path("curve.csv")};
  const std::string curve{std::istreambuf_iterator<char>{in}, {}};
  CHECK(says(curve, "\n1,"));
  CHECK_FALSE(says(curve, "inf"));
}

TEST_CASE("a damaged checkpoint is not used, and an event says which, why and what instead") {
  namespace fs = std::filesystem;
  const auto resumed = [](const std::function<void(const fs::path&)>& damage) {
    const troupe::test::scratch directory;
    const auto m = tiny_model();
    for (const std::uint64_t i : {3, 5}) write_checkpoint(directory.path(), m, i);
    damage(write_checkpoint(directory.path(), m, 10));
    auto job = saved_in(directory, 20);
    job.model = m;
    trainer_fixture t{job, 12};
    const auto setups = t.take<stage_setup>();
    REQUIRE(setups.size() == 2);
    for (const auto& s : setups) CHECK(s.first_iteration == setups[0].first_iteration);
    if (setups[0].first_iteration == 10) return std::string{};
    CHECK(setups[0].first_iteration == 5);  // all stages load the same one
    REQUIRE(t.events.size() == 2);
    CHECK(says(t.events[1], "resumed after iteration 5 of 20"));
    const std::string begin = "the checkpoint after iteration 10 is not used: ";
    CHECK(t.events[0].starts_with(begin));
    return t.events[0].substr(begin.size());
  };
  const auto index_of = [](const fs::path& file) {
    return file.parent_path() / gpu::checkpoint_index;
  };
  CHECK(resumed([](const fs::path&) {}).empty());
  CHECK(says(resumed([](const fs::path& f) { fs::resize_file(f, fs::file_size(f) - 1); }),
             "layers-all.safetensors places "));
  CHECK(says(resumed([](const fs::path& f) { fs::resize_file(f, 100); }), "is truncated"));
  CHECK(says(resumed([](const fs::path& f) { fs::remove(f); }), "cannot be opened"));
  CHECK(says(resumed([&](const fs::path& f) {
               fs::resize_file(index_of(f), fs::file_size(index_of(f)) / 2);
             }),
             "index.json: is not a JSON object"));
  CHECK(says(resumed([&](const fs::path& f) { fs::resize_file(index_of(f), 0); }), "index.json"));
}

TEST_CASE("a training whose checkpoints are all damaged fails, and does not begin anew") {
  const troupe::test::scratch directory;
  auto job = saved_in(directory, 20);
  job.model = tiny_model();
  for (const std::uint64_t i : {5, 10})
    std::filesystem::resize_file(write_checkpoint(directory.path(), job.model, i), 100);
  trainer_fixture t{job};
  t.reports_at_end();
  REQUIRE(t.over());
  CHECK(t.over()->how == part_report::state::failed);
  CHECK(says(t.over()->detail, "iteration-000010/layers-all.safetensors is truncated"));
  CHECK(t.take<stage_setup>().empty());
}
