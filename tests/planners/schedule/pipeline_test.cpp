#include <catch2/catch.hpp>
#include <string>

#include "harness/facts.hpp"
#include "harness/pipeline_shapes.hpp"
#include "messages/base/random.hpp"
#include "messages/domain/schedules.hpp"
#include "planners/schedule/named_schedule.hpp"
#include "planners/schedule/schedule.hpp"
#include "slot_facts.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

pipeline_schedule made(const pipeline_shape& s, std::string_view name) {
  auto result = schedule_pipeline(s, name);
  REQUIRE(result);
  return *result;
}

/// The paper's Figure 6: six stages, two a datacenter, two pipelines, four micro-batches, C = 2.
pipeline_shape figure_6() {
  return {6, 2, 4, {2, 2, 2}, 0, {}, {}};
}

/// Sixty stages and micro-batches over five datacenters, with C pipelines.
pipeline_shape sixty(std::uint32_t c, std::uint32_t stages_per_datacenter = 12) {
  pipeline_shape s{60, c, 60, troupe::test::split_evenly(60, stages_per_datacenter), 0, {}, {}};
  s.costs.wan = c;
  return s;
}

}  // namespace

TEST_CASE("schedules reproduce the slots of ATLAS's Figure 6 exactly") {
  const auto varuna = made(figure_6(), "varuna"), atlas = made(figure_6(), "atlas");
  CHECK(varuna.length == 38);
  CHECK(troupe::test::utilization(varuna) == Approx(0.404).margin(0.0005));
  CHECK(atlas.length == 36);
  CHECK(troupe::test::utilization(atlas) == Approx(0.426).margin(0.0005));
  CHECK(made(figure_6(), "atlas-least-progress").length == 34);

  // Slots are counted from 1 in the paper. Varuna: the third stage of the second pipeline.
  std::vector<double> forwards;
  for (const auto& t : varuna.of(1, 2))
    if (t.what == stage_task::kind::forward) forwards.push_back(t.begin + 1);
  CHECK(forwards == std::vector<double>{5, 7, 9, 11});

  // ATLAS: the second stage of the second pipeline, and its transfers.
  forwards.clear();
  for (const auto& t : atlas.of(1, 1))
    if (t.what == stage_task::kind::forward) forwards.push_back(t.begin + 1);
  CHECK(forwards == std::vector<double>{6, 7, 8, 9});
  std::vector<double> crossings;
  for (const auto& x : atlas.transfers)
    if (x.pipeline == 1 && x.stage == 1 && !x.backward) crossings.push_back(x.begin + 1);
  CHECK(crossings == std::vector<double>{7, 8, 9, 10});
}

TEST_CASE("sixty stages and sixty micro-batches take the slots of an independent simulation") {
  CHECK(made(sixty(2, 60), "varuna").length == 414);
  for (const auto& f : slots::sixty_over_five) {
    INFO(f.name);
    CHECK(made(sixty(2), f.name).length == f.two);
    CHECK(made(sixty(3), f.name).length == f.three);
  }
}

TEST_CASE("over two datacenters strict rank is slower than Varuna, and least progress is not") {
  CHECK(made(sixty(3, 30), "varuna").length == 495);
  CHECK(made(sixty(3, 30), "varuna-forward-first").length == 422);
  CHECK(made(sixty(3, 30), "atlas").length == 538);
  CHECK(made(sixty(3, 30), "atlas-least-progress").length == 421);
}

TEST_CASE("best is never longer than any other schedule and never shorter than the bound") {
  random_source random{7};
  for (int i = 0; i < 300; ++i) {
    pipeline_shape s;
    s.stages = 1 + static_cast<std::uint32_t>(random.below(8));
    s.pipelines = 1 + static_cast<std::uint32_t>(random.below(4));
    s.microbatches = 1 + static_cast<std::uint32_t>(random.below(8));
    s.stages_of_datacenter =
        troupe::test::split_evenly(s.stages, 1 + static_cast<std::uint32_t>(random.below(4)));
    s.costs.recompute = random.chance(0.3) ? 0 : 1;
    s.recompute = !random.chance(0.3);
    s.costs.wan = static_cast<double>(random.below(60)) / 10;
    s.costs.lan = random.chance(0.5) ? 0 : 0.25;
    if (random.chance(0.4)) s.max_in_flight = 1 + static_cast<std::uint32_t>(random.below(8));
    const auto best = made(s, "best");
    CHECK(best.length >= pipeline_lower_bound(s) - 1e-6);
    for (const auto name : schedule_names)
      if (const auto other = schedule_pipeline(s, name)) CHECK(best.length <= other->length);
  }
}

TEST_CASE(
    "in every schedule a stage runs each micro-batch once, one at a time, in order of the data") {
  random_source random{11};
  for (int i = 0; i < 200; ++i) {
    pipeline_shape s;
    s.stages = 1 + static_cast<std::uint32_t>(random.below(6));
    s.pipelines = 1 + static_cast<std::uint32_t>(random.below(3));
    s.microbatches = 1 + static_cast<std::uint32_t>(random.below(6));
    s.stages_of_datacenter =
        troupe::test::split_evenly(s.stages, 1 + static_cast<std::uint32_t>(random.below(3)));
    s.costs.wan = static_cast<double>(random.below(40)) / 10;
    for (const auto name : schedule_names) {
      const auto plan = made(s, name);
      for (std::uint32_t p = 0; p < s.pipelines; ++p) {
        for (std::uint32_t stage = 0; stage < s.stages; ++stage) {
          std::vector<double> forward(s.microbatches, -1), backward(s.microbatches, -1);
          double free_at = 0;
          for (const auto& t : plan.of(p, stage)) {
            CHECK(t.begin >= free_at - 1e-9);
            free_at = t.end;
            if (t.what == stage_task::kind::forward) forward[t.microbatch] = t.end;
            if (t.what == stage_task::kind::backward) backward[t.microbatch] = t.begin;
          }
          for (std::uint32_t m = 0; m < s.microbatches; ++m) {
            CHECK(forward[m] > 0);
            CHECK(backward[m] >= forward[m] - 1e-9);
          }
        }
      }
    }
  }
}

TEST_CASE(
    "a stage never holds more micro-batches than the job allows, or the schedule is refused") {
  auto s = figure_6();
  s.max_in_flight = 2;
  for (const auto name :
       {"varuna", "varuna-forward-first", "atlas", "atlas-least-progress", "best"})
    CHECK(made(s, name).max_in_flight <= 2);
  const auto gpipe = schedule_pipeline(s, "gpipe");
  REQUIRE_FALSE(gpipe);
  CHECK(troupe::test::has_facts(gpipe.error().text, {"gpipe", "4 micro-batches", "2"}));
}

TEST_CASE("datacenters may hold different numbers of stages, and empty ones are skipped") {
  pipeline_shape s;
  s.stages = 6;
  s.stages_of_datacenter = {1, 0, 3, 2, 0};
  std::vector<std::uint32_t> wan;
  for (std::uint32_t stage = 0; stage < s.stages; ++stage)
    if (s.is_wan(stage)) wan.push_back(stage);
  CHECK(wan == std::vector<std::uint32_t>{0, 3});
  s.stages_of_datacenter.clear();
  for (std::uint32_t stage = 0; stage < s.stages; ++stage) CHECK_FALSE(s.is_wan(stage));
  s.stages_of_datacenter = {1, 3};
  CHECK(troupe::test::has_facts(schedule_pipeline(s, "varuna").error().text,
                                {"stages_of_datacenter", "6"}));
}

TEST_CASE("each DP-cell is scheduled as if it were alone") {
  auto s = figure_6();
  s.pipelines = 5;
  s.cell = 2;
  const auto five = made(s, "atlas"), two = made(figure_6(), "atlas");
  s.pipelines = s.cell = 1;
  const auto one = made(s, "atlas");
  for (std::uint32_t stage = 0; stage < s.stages; ++stage) {
    CHECK(five.of(2, stage) == two.of(0, stage));
    CHECK(five.of(3, stage) == two.of(1, stage));
    CHECK(five.of(4, stage) == one.of(0, stage));
  }
  CHECK(five.length == std::max(two.length, one.length));
  CHECK(five.transfers.size() == 5u * 2 * 2 * 4);
}

TEST_CASE("a stage's order has each tensor's rank within its cell, hop and direction") {
  for (const auto name : schedule_names) {
    auto s = figure_6();
    s.pipelines = 4;
    s.cell = 2;
    const auto plan = made(s, name);
    const auto orders = stage_orders(plan);
    REQUIRE(orders.size() == 24);
    for (std::uint32_t p = 0; p < s.pipelines; ++p) {
      for (std::uint32_t stage = 0; stage < s.stages; ++stage) {
        const auto& order = orders[p * s.stages + stage];
        const auto& tasks = plan.of(p, stage);
        REQUIRE(order.size() == tasks.size());
        for (std::size_t i = 0; i < order.size(); ++i) {
          CHECK(order[i].what == tasks[i].what);
          CHECK(order[i].microbatch == tasks[i].microbatch);
          const bool back = order[i].what == stage_step::kind::backward;
          const bool sends = order[i].what != stage_step::kind::recompute &&
                             (back ? stage > 0 && s.is_wan(stage - 1) : s.is_wan(stage));
          std::uint32_t before = 0;
          const auto after = back ? stage - 1 : stage;
          const auto mine =
              std::find_if(plan.transfers.begin(), plan.transfers.end(), [&](const auto& t) {
                return t.pipeline == p && t.stage == after && t.backward == back &&
                       t.microbatch == order[i].microbatch;
              });
          if (order[i].what != stage_step::kind::recompute)
            CHECK((mine != plan.transfers.end()) == sends);
          for (auto t = plan.transfers.begin(); sends && t != mine; ++t)
            before += t->stage == after && t->backward == back &&
                      (plan.shares_wan ? t->pipeline / 2 == p / 2 : t->pipeline == p);
          CHECK(order[i].turn == before);
        }
      }
    }
  }
}

TEST_CASE(
    "every schedule orders a stage's backwards by micro-batch, so gradients sum up identically") {
  for (const auto name : schedule_names) {
    const auto plan = made(figure_6(), name);
    for (const auto& tasks : plan.tasks) {
      std::uint32_t next = 0;
      for (const auto& t : tasks)
        if (t.what == stage_task::kind::backward) CHECK(t.microbatch == next++);
      CHECK(next == 4);
    }
  }
}
