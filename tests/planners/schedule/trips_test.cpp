#include <catch2/catch.hpp>

#include <algorithm>

#include "messages/base/random.hpp"
#include "planners/schedule/evaluate_schedule.hpp"
#include "planners/schedule/named_schedule.hpp"
#include "planners/schedule/trips.hpp"

// Chains of trips against schedules of 1F1B that are carried out.

using namespace troupe;
using namespace troupe::planners;

namespace {

/// Stages of unlike steps, and sends that no other send delays.
struct pipeline {
  pipeline_shape shape;
  measured_times times;

  explicit pipeline(random_source& r) {
    shape.stages = static_cast<std::uint32_t>(2 + r.below(11));
    shape.microbatches = static_cast<std::uint32_t>(1 + r.below(40));
    const double uneven = r.uniform() * r.uniform(), send = 3 * r.uniform();
    for (std::uint32_t s = 0; s < shape.stages; ++s) {
      const double forward = 1 + uneven * r.uniform();
      const double recompute = s + 1 < shape.stages ? forward : 0;
      shape.by_stage.push_back({forward, recompute, 2 * forward});
      times.stages.push_back({forward, recompute, shape.by_stage.back().backward});
      times.lan.push_back(send);
    }
    times.wan.assign(shape.stages, 0.0);
  }

  double carried_out_s() const {
    return simulated_iteration_s(*schedule_pipeline(shape, "megatron"), times);
  }
  /// S, and what any stage's trips add.
  double by_trips_s(bool mixed) const {
    double through = 0, max = 0;
    for (auto s = shape.stages; s-- > 0;) {
      const auto k = shape.at(s);
      const double behind = through;
      if (s + 1 < shape.stages) through += 2 * times.lan[s];
      through += k.forward + k.backward;
      const auto held = shape.stages - s;
      const double step = k.forward + k.recompute + k.backward;
      max = std::max(max, trips_s(shape.microbatches, held, through, mixed ? behind : 0, step));
    }
    return through + max;
  }
};

}  // namespace

TEST_CASE("no 1F1B schedule is shorter than the round trips of its micro-batches") {
  random_source random{20261125};
  int exact = 0, longer = 0;
  for (int i = 0; i < 2000; ++i) {
    CAPTURE(i);
    const pipeline p{random};
    const double s = p.carried_out_s(), bound_s = p.by_trips_s(true);
    REQUIRE(bound_s <= s * (1 + 1e-9));
    exact += bound_s > s * (1 - 1e-9);
    longer += bound_s > p.by_trips_s(false) * 1.005;
  }
  CAPTURE(exact, longer);
  CHECK(exact > 200);
  CHECK(longer > 100);
}
