#include "slots.hpp"
#include "harness/pipeline_shapes.hpp"
#include "messages/domain/schedules.hpp"
#include "planners/schedule/named_schedule.hpp"

#include <catch2/catch.hpp>

#include "messages/base/random.hpp"
#include "slot_facts.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

int slots_of(const pipeline_shape& s, const slots::costs& c, std::string_view name) {
  return slots::machine{s, c, name}.run();
}

slots::costs costs_for(const pipeline_shape& s, std::string_view name, int c) {
  slots::costs k;
  k.hop = slots::rules_named(name).shared ? c / static_cast<int>(s.pipelines) : c;
  return k;
}

pipeline_shape sixty_stages(std::uint32_t c, std::uint32_t each) {
  return {60, c, 60, troupe::test::split_evenly(60, each), 0, {}, {}};
}

/// Everything that every GPU does, and when.
void check_same(const pipeline_schedule& plan, slots::machine& m) {
  const auto& s = plan.shape;
  for (std::uint32_t p = 0; p < s.pipelines; ++p)
    for (std::uint32_t i = 0; i < s.stages; ++i) {
      std::vector<slots::begun> planned;
      for (const auto& t : plan.of(p, i))
        planned.push_back({"FRB"[static_cast<int>(t.what)], static_cast<int>(t.microbatch),
                           static_cast<int>(t.begin + 0.5)});
      if (planned != m.of(static_cast<int>(p), static_cast<int>(i)))
        FAIL_CHECK("pipeline " << p << " stage " << i << " differs");
    }
}

}  // namespace

TEST_CASE("an independent simulation, slot by slot, reproduces every number of ATLAS's pipelines") {
  const pipeline_shape figure_6{6, 2, 4, {2, 2, 2}, 0, {}, {}};
  const auto six = [&](std::string_view name) {
    return slots_of(figure_6, costs_for(figure_6, name, 2), name);
  };
  CHECK(six("varuna") == 38);
  CHECK(six("atlas") == 36);
  CHECK(six("atlas-least-progress") == 34);
  CHECK(slots_of(sixty_stages(2, 60), costs_for(sixty_stages(2, 60), "varuna", 2), "varuna") ==
        414);
  for (const auto& f : slots::sixty_over_five) {
    INFO(f.name);
    CHECK(slots_of(sixty_stages(2, 12), costs_for(sixty_stages(2, 12), f.name, 2), f.name) ==
          f.two);
    CHECK(slots_of(sixty_stages(3, 12), costs_for(sixty_stages(3, 12), f.name, 3), f.name) ==
          f.three);
  }
}

TEST_CASE("on random pipelines the planner and the independent simulation agree at all times") {
  random_source random{2411};
  const auto pick = [&](int from, int to) {
    return from + static_cast<int>(random.below(static_cast<std::uint64_t>(to - from + 1)));
  };
  int compared = 0;
  for (int i = 0; i < 400; ++i) {
    pipeline_shape s;
    s.stages = static_cast<std::uint32_t>(pick(1, 9));
    s.pipelines = static_cast<std::uint32_t>(pick(1, 4));
    s.microbatches = static_cast<std::uint32_t>(pick(1, 10));
    s.stages_of_datacenter =
        troupe::test::split_evenly(s.stages, static_cast<std::uint32_t>(pick(1, 4)));
    if (random.chance(0.4)) s.max_in_flight = static_cast<std::uint32_t>(pick(1, 6));
    s.recompute = !random.chance(0.3);
    const int share = pick(0, 3);  // of a shared hop
    slots::costs c{pick(1, 3), pick(0, 3), pick(1, 5), random.chance(0.5) ? 0 : pick(1, 2), 0};
    s.costs = {static_cast<double>(c.forward),           static_cast<double>(c.recompute),
               static_cast<double>(c.backward),          static_cast<double>(c.lan),
               static_cast<double>(share) * s.pipelines, 0};
    if (random.chance(0.4))
      for (std::uint32_t k = 0; k < s.stages; ++k)
        s.by_stage.push_back({static_cast<double>(pick(1, c.forward)),
                              static_cast<double>(pick(0, c.recompute)),
                              static_cast<double>(pick(1, c.backward))});
    for (const auto name : schedule_names) {
      if (name == "best") continue;
      const auto plan = schedule_pipeline(s, name);
      if (!plan) continue;  // it would hold more than it may
      c.hop = slots::rules_named(name).shared ? share : share * static_cast<int>(s.pipelines);
      slots::machine m{s, c, name};
      INFO(name << ", case " << i << ": " << s.stages << " stages, " << s.pipelines
                << " pipelines, " << s.microbatches << " micro-batches; " << c.forward << " "
                << c.recompute << " " << c.backward << " " << c.lan << " " << c.hop);
      CHECK(m.run() == plan->length);
      check_same(*plan, m);
      ++compared;
    }
  }
  CHECK(compared > 1500);
}
