#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>

#include "harness/pipeline_shapes.hpp"
#include "messages/base/random.hpp"
#include "messages/domain/schedules.hpp"
#include "planners/schedule/evaluate_schedule.hpp"
#include "planners/schedule/named_schedule.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

pipeline_shape figure6() {
  pipeline_shape s{6, 2, 4, {2, 2, 2}, 0, {}, {1, 1, 2, 0, 2, 0}};
  return s;
}

measured_times as_planned(const pipeline_shape& s) {
  const auto& c = s.costs;
  measured_times t;
  t.stages.assign(std::size_t{s.stages} * s.pipelines, {c.forward, c.recompute, c.backward});
  for (std::uint32_t i = 0; i < s.stages; ++i) t.wan.push_back(s.is_wan(i) ? c.wan : 0);
  t.lan.assign(s.stages, c.lan);
  t.wan_latency = c.wan_latency;
  return t;
}

double carried_out(const pipeline_shape& s, const char* name, const measured_times& t) {
  const auto made = schedule_pipeline(s, name);
  REQUIRE(made);
  return simulated_iteration_s(*made, t);
}

}  // namespace

TEST_CASE("orders executed with the planned times take the planned time") {
  const auto s = figure6();
  CHECK(carried_out(s, "varuna", as_planned(s)) == Approx(38));
  CHECK(carried_out(s, "atlas", as_planned(s)) == Approx(36));
  CHECK(carried_out(s, "atlas-least-progress", as_planned(s)) == Approx(34));
}

TEST_CASE("stages that execute a strict rank's order do not wait as rule 3 does, and end earlier") {
  // Two stages in two datacenters, three pipelines, C = 3: by the rules no pipeline forwards while
  // a lower rank has the hop. The order is the same when stages start as soon as they can.
  const std::pair<std::uint32_t, std::pair<double, double>> slots[] = {
      {5, {30, 30}}, {7, {42, 40}}, {8, {48, 45}}, {11, {66, 60}}, {13, {78, 70}}};
  for (const auto& [microbatches, lengths] : slots) {
    const pipeline_shape s{2, 3, microbatches, {1, 1}, 0, {}, {1, 1, 2, 0, 3, 0}};
    const auto made = schedule_pipeline(s, "atlas");
    REQUIRE(made);
    CHECK(made->length == lengths.first);
    CHECK(simulated_iteration_s(*made, as_planned(s)) == Approx(lengths.second));
  }
}

TEST_CASE("without WAN ranks, executing the orders of any shape takes no longer than planned") {
  random_source random{7};
  for (int i = 0; i < 60; ++i) {
    pipeline_shape s;
    s.stages = 2 + random.below(6);
    s.pipelines = 1 + random.below(5);
    s.microbatches = 1 + random.below(8);
    s.stages_of_datacenter = troupe::test::split_evenly(s.stages, 1 + random.below(3));
    s.cell = random.below(4);
    if (random.chance(0.3)) s.max_in_flight = s.stages;
    s.costs = {1, 1, 2, 0.25 * random.below(3), 0.5 * random.below(12), 0.5 * random.below(4)};
    for (const auto name : {"gpipe", "megatron", "varuna", "varuna-forward-first"}) {
      const auto made = schedule_pipeline(s, name);
      if (!made) continue;
      INFO(name << ": " << s.stages << " stages, " << s.pipelines << " pipelines, run " << i);
      CHECK(simulated_iteration_s(*made, as_planned(s)) <= made->length + 1e-6);
    }
  }
}

TEST_CASE("schedule best ends an iteration first, gradient sums and updates included") {
  random_source random{29};
  int tails_matter = 0;
  for (int i = 0; i < 300; ++i) {
    pipeline_shape s;
    s.stages = 1 + random.below(6);
    s.pipelines = 1 + random.below(4);
    s.microbatches = 1 + random.below(8);
    s.stages_of_datacenter = troupe::test::split_evenly(s.stages, 1 + random.below(3));
    s.cell = random.below(4);
    if (random.chance(0.3)) s.max_in_flight = 1 + random.below(s.stages);
    s.costs = {1, 1, 2, 0.25 * random.below(3), 0.5 * random.below(12), 0.5 * random.below(4)};
    for (std::uint32_t stage = 0; stage < s.stages; ++stage) {
      if (random.chance(0.5)) s.by_stage.resize(s.stages);
      s.tail.push_back(random.chance(0.5) ? 0 : random.uniform() * 6 * (stage + 1));
    }
    for (auto& k : s.by_stage)
      k = {0.5 + random.uniform(), 0.5 + random.uniform(), 1 + random.uniform()};
    const auto whole = [&](const pipeline_schedule& made) {
      measured_times t = as_planned(s);
      for (std::size_t stage = 0; stage < t.stages.size(); ++stage) {
        const auto k = s.at(stage % s.stages);
        t.stages[stage] = {k.forward, k.recompute, k.backward, s.tail[stage % s.stages], 0};
      }
      return simulated_iteration_s(made, t);
    };
    const auto best = schedule_pipeline(s, "best");
    if (!best) continue;
    INFO(s.stages << " stages, " << s.pipelines << " pipelines, run " << i << ", by "
                  << best->made_by);
    CHECK(whole(*best) >= pipeline_lower_bound(s) - 1e-6);
    auto plain = s;
    plain.tail.clear();
    tails_matter += whole(*best) < whole(*schedule_pipeline(plain, "best")) - 1e-6;
    for (const auto name : schedule_names) {
      const auto other = schedule_pipeline(s, name);
      if (!other) continue;
      INFO(name);
      CHECK(whole(*best) <= whole(*other) + 1e-9);
    }
  }
  CHECK(tails_matter > 0);
}

TEST_CASE("a slow stage delays the stages that depend on it") {
  pipeline_shape s{2, 1, 1, {}, 0, {}, {1, 1, 2, 0, 0, 0}};
  auto t = as_planned(s);
  CHECK(carried_out(s, "varuna", t) == Approx(6));
  t.stages[1] = {3, 0, 6};
  CHECK(carried_out(s, "varuna", t) == Approx(1 + 3 + 6 + 2));
}

TEST_CASE("a slow hop delays only its own transfers") {
  pipeline_shape s{3, 1, 1, {1, 1, 1}, 0, {}, {1, 1, 2, 0, 2, 0}};
  auto t = as_planned(s);
  const double before = carried_out(s, "varuna", t);
  t.wan[1] = 20;
  CHECK(carried_out(s, "varuna", t) == Approx(before + 2 * 18));
}

TEST_CASE("orders that wait for each other take infinitely long") {
  pipeline_shape s{2, 1, 2, {}, 0, {}, {1, 1, 2, 0, 0, 0}};
  auto made = schedule_pipeline(s, "gpipe");
  REQUIRE(made);
  // The first stage wants its first gradient before it forwards the second micro-batch; the last
  // stage forwards both before it goes back.
  auto& first = made->tasks[0];
  std::stable_sort(first.begin(), first.end(),
                   [](const auto& a, const auto& b) { return a.microbatch < b.microbatch; });
  CHECK(std::isinf(simulated_iteration_s(*made, as_planned(s))));
}
