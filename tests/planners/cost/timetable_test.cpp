#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <tuple>

#include "formats/load/load.hpp"
#include "harness/pipeline_shapes.hpp"
#include "messages/base/random.hpp"
#include "messages/domain/schedules.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/policy/placement.hpp"
#include "planners/schedule/evaluate_schedule.hpp"
#include "planners/schedule/named_schedule.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

using kind = stage_task::kind;
constexpr double tiny = 1e-8;

struct timed_case {
  pipeline_schedule schedule;
  measured_times times;
};

pipeline_shape random_shape(random_source& r) {
  pipeline_shape s;
  s.stages = 1 + static_cast<std::uint32_t>(r.below(6));
  s.pipelines = 1 + static_cast<std::uint32_t>(r.below(4));
  s.microbatches = 1 + static_cast<std::uint32_t>(r.below(7));
  s.stages_of_datacenter =
      troupe::test::split_evenly(s.stages, 1 + static_cast<std::uint32_t>(r.below(3)));
  s.cell = static_cast<std::uint32_t>(r.below(4));
  s.costs = {1,
             1,
             2,
             0.25 * static_cast<double>(r.below(3)),
             0.5 * static_cast<double>(r.below(9)),
             0.5 * static_cast<double>(r.below(3))};
  return s;
}

measured_times random_times(const pipeline_shape& s, random_source& r) {
  measured_times t;
  for (std::uint32_t i = 0; i < s.stages * s.pipelines; ++i) {
    const double gradients = r.chance(0.5) ? 0 : 0.3 * r.uniform();
    t.stages.push_back({0.5 + r.uniform(), r.uniform(), 1 + r.uniform(), gradients + r.uniform(),
                        r.chance(0.5) ? 0 : r.uniform(), gradients});
  }
  t.wan.assign(s.stages, s.costs.wan);
  t.lan.assign(s.stages, s.costs.lan);
  t.wan_latency = s.costs.wan_latency;
  return t;
}

timed_case random_case(random_source& r) {
  const auto names = schedule_names;
  for (;;) {
    const auto shape = random_shape(r);
    if (auto made = schedule_pipeline(shape, names[r.below(names.size())]))
      return {*made, random_times(shape, r)};
  }
}

/// Transfers inside datacenters share links, and hosts all-reduce.
timed_case gpt_a(const char* schedule) {
  const auto c =
      formats::load_cluster(formats::configs_directory() / "clusters/atlas-testbed.yaml");
  auto job = formats::load_job(formats::configs_directory() / "jobs/atlas-gpt-a.yaml");
  REQUIRE((c && job));
  job->train->schedule = schedule;
  const auto placed = place_pipelines(*c, idle_index{*c}, *job, true);
  REQUIRE(placed);
  const auto timed = time_plan(*c, *job, placed->how, placed->where);
  REQUIRE(timed);
  const auto made = schedule_pipeline(timed->shapes[0], schedule);
  REQUIRE(made);
  REQUIRE_FALSE(timed->times.routes.empty());
  return {*made, timed->times};
}

void check_steps_follow_one_another(const timed_case& x, const timetable& t) {
  const auto orders = stage_orders(x.schedule);
  for (std::size_t stage = 0; stage < t.steps.size(); ++stage) {
    const auto each = t.steps_of_iteration(stage);
    REQUIRE(each == orders[stage].size());
    double free = 0;
    for (std::size_t i = 0; i < t.steps[stage].size(); ++i) {
      const auto& step = t.steps[stage][i];
      REQUIRE(step.what == orders[stage][i % each].what);
      REQUIRE(step.microbatch == orders[stage][i % each].microbatch);
      REQUIRE(step.begin >= free - tiny);
      free = step.end;
      if ((i + 1) % each != 0) continue;
      const auto& tail = t.tails[stage][i / each];
      const auto& k = x.times.stages[stage];
      REQUIRE(std::abs(tail.begin - step.end) < tiny);
      REQUIRE(tail.exchange == Approx(tail.begin + k.gradients));
      REQUIRE(tail.update >= tail.exchange);
      REQUIRE(tail.end - tail.update == Approx(k.update - k.gradients).margin(1e-12));
      free = tail.end;
    }
    REQUIRE(t.length >= free);
  }
}

/// Every tensor leaves after the step that made it and arrives before the one that needs it.
void check_tensors_connect_steps(const timed_case& x, const timetable& t) {
  const auto& shape = x.schedule.shape;
  using key = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, bool>;
  std::map<key, const timed_transfer*> sent;
  for (const auto& w : t.transfers)
    REQUIRE(
        sent.emplace(key{w.iteration, w.pipeline, w.stage, w.microbatch, w.backward}, &w).second);
  const auto expected =
      t.iterations * shape.pipelines * shape.microbatches * (shape.stages - 1) * 2;
  REQUIRE(sent.size() == expected);
  for (std::size_t stage = 0; stage < t.steps.size(); ++stage)
    for (std::size_t i = 0; i < t.steps[stage].size(); ++i) {
      const auto& step = t.steps[stage][i];
      if (step.what == kind::recompute) continue;
      const bool back = step.what == kind::backward;
      const auto iteration = static_cast<std::uint32_t>(i / t.steps_of_iteration(stage));
      const auto p = static_cast<std::uint32_t>(stage / shape.stages);
      const auto s = static_cast<std::uint32_t>(stage % shape.stages);
      const bool has_source = back ? s + 1 < shape.stages : s > 0;
      const bool sends = back ? s > 0 : s + 1 < shape.stages;
      if (has_source) {
        const auto& w = *sent.at({iteration, p, back ? s : s - 1, step.microbatch, back});
        REQUIRE(w.end <= step.begin + tiny);
      }
      if (sends) {
        const auto& w = *sent.at({iteration, p, back ? s - 1 : s, step.microbatch, back});
        REQUIRE(w.begin >= step.end - tiny);
        REQUIRE(w.left >= w.begin - tiny);
        REQUIRE(w.end >= w.left - tiny);
      }
    }
}

/// A DP-cell's transfers take turns on each hop and direction.
void check_wan_is_used_by_one(const timed_case& x, const timetable& t) {
  const auto cell = x.schedule.shares_wan ? x.schedule.shape.pipelines_per_cell() : 1;
  std::map<std::tuple<std::uint32_t, std::uint32_t, bool>, double> free;
  for (const auto& w : t.transfers) {
    if (!x.schedule.shape.is_wan(w.stage)) continue;
    auto& f = free[{w.pipeline / cell, w.stage, w.backward}];
    REQUIRE(w.begin >= f - tiny);
    f = w.left;
  }
}

void check(const timed_case& x) {
  for (const std::uint32_t iterations : {1u, 2u}) {
    const auto t = simulated_timetable(x.schedule, x.times, iterations);
    REQUIRE(t);
    auto times = x.times;
    times.iterations = iterations;
    REQUIRE(t->length / iterations == simulated_iteration_s(x.schedule, times));
    check_steps_follow_one_another(x, *t);
    check_tensors_connect_steps(x, *t);
    check_wan_is_used_by_one(x, *t);
  }
}

}  // namespace

TEST_CASE("a timetable has the length of the iterations and every step in its place") {
  random_source random{41};
  for (int i = 0; i < 300; ++i) {
    const auto x = random_case(random);
    INFO("case " << i << ": " << x.schedule.shape.stages << " stages, "
                 << x.schedule.shape.pipelines << " pipelines, " << x.schedule.made_by);
    check(x);
  }
}

TEST_CASE("a timetable with shared links and all-reduces between hosts is as consistent") {
  for (const auto* schedule : {"varuna", "atlas", "atlas-least-progress", "best"})
    check(gpt_a(schedule));
}

TEST_CASE("two iterations without a barrier overlap") {
  pipeline_shape s{2, 1, 2, {1, 1}, 0, {}, {1, 1, 2, 0, 2, 0}};
  const auto made = schedule_pipeline(s, "varuna");
  REQUIRE(made);
  measured_times t;
  t.stages = {{1, 1, 2, 0.5, 0.25, 0.125}, {1, 0, 2, 5}};
  t.wan = {2, 0};
  t.lan = {0, 0};
  const auto one = simulated_timetable(*made, t, 1), two = simulated_timetable(*made, t, 2);
  REQUIRE((one && two));
  // Stage 2: forward at 3, backward at 4; the second micro-batch's activation is here at 5.
  CHECK(one->steps[1][0] == stage_task{kind::forward, 0, 3, 4});
  CHECK(one->steps[1][1] == stage_task{kind::backward, 0, 4, 6});
  CHECK(one->steps[1].back() == stage_task{kind::backward, 1, 7, 9});
  // Its last gradient is at the first stage at 11, which then goes back and updates.
  CHECK(one->steps[0].back() == stage_task{kind::backward, 1, 11, 13});
  CHECK(one->tails[0][0] == timed_tail{13, 13.125, 13.375, 13.75, false});
  CHECK(one->tails[1][0].end == 14);
  CHECK(one->length == 14);
  // The second iteration's first forward waits for that update, not for a barrier.
  CHECK(two->steps[0][6].begin == 13.75);
  CHECK(two->steps[1][4].begin == 13.75 + 1 + 2);
  CHECK(two->tails[0][1].end == 2 * 13.75);
  CHECK(two->length == 27.75);
}

TEST_CASE("a timetable of orders that deadlock is refused") {
  pipeline_shape s{2, 1, 2, {}, 0, {}, {1, 1, 2, 0, 0, 0}};
  auto made = schedule_pipeline(s, "gpipe");
  REQUIRE(made);
  std::ranges::stable_sort(made->tasks[0], {}, &stage_task::microbatch);
  measured_times t;
  t.stages.assign(2, {1, 1, 2});
  t.wan = t.lan = {0, 0};
  const auto refused = simulated_timetable(*made, t, 2);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().text.find("wait for each other") != std::string::npos);
}
