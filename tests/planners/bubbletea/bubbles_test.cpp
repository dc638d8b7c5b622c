#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "messages/base/random.hpp"
#include "planners/bubbletea/bubbles.hpp"
#include "random_timetable.hpp"

using namespace troupe;
using namespace troupe::planners;

TEST_CASE(
    "a moment is in a bubble if the device is idle and its next step is later than the guard") {
  random_source r{61};
  for (int i = 0; i < 200; ++i) {
    const auto t = sample::random_timetable(r, 1 + static_cast<std::uint32_t>(r.below(3)));
    const double guard = r.chance(0.3) ? 0 : 0.4 * r.uniform();
    const double from = r.uniform() * 2 * t.length, to = from + r.uniform() * 3 * t.length;
    const auto all = bubbles(t, from, to, guard);
    REQUIRE(all.size() == t.steps.size());
    for (std::size_t stage = 0; stage < all.size(); ++stage) {
      const auto& windows = all[stage];
      for (std::size_t w = 0; w < windows.size(); ++w) {
        CHECK(windows[w].end > windows[w].begin);
        if (w > 0) CHECK(windows[w].begin >= windows[w - 1].end);
      }
      for (int k = 0; k < 50; ++k) {
        const double x = from - 1 + (to - from + 2) * r.uniform();
        const bool inside =
            std::ranges::any_of(windows, [&](const auto& w) { return x >= w.begin && x < w.end; });
        INFO("case " << i << ", stage " << stage << ", at " << x);
        REQUIRE(inside == sample::is_free(t, stage, x, from, to, guard));
      }
    }
  }
}

TEST_CASE("a device is idle while hosts all-reduce, but not while devices do") {
  timetable t;
  t.iterations = 1;
  t.steps = {{{stage_task::kind::forward, 0, 0, 1}, {stage_task::kind::backward, 0, 2, 4}}};
  t.tails = {{{4, 4.5, 6, 7, false}}};
  t.length = 7;
  CHECK(busy_times(t, 0) == idle_windows{{0, 1}, {2, 4.5}, {6, 7}});
  CHECK(bubbles(t, 0, 14, 0)[0] == idle_windows{{1, 2}, {4.5, 6}, {8, 9}, {11.5, 13}});
  CHECK(bubbles(t, 0, 14, 0.25)[0] ==
        idle_windows{{1, 1.75}, {4.5, 5.75}, {8, 8.75}, {11.5, 12.75}});
  t.tails[0][0].on_devices = true;
  CHECK(busy_times(t, 0) == idle_windows{{0, 1}, {2, 7}});
  // Neither copies nor an update: nothing divides the bubble before the next iteration.
  t.tails[0][0] = {4, 4, 6, 6, false};
  CHECK(busy_times(t, 0) == idle_windows{{0, 1}, {2, 4}});
}

TEST_CASE("what is left of windows without the times in use") {
  const idle_windows w{{0, 10}, {20, 30}};
  CHECK(without(w, {}) == w);
  CHECK(without(w, {{2, 3}, {5, 10}, {20, 21}}) == idle_windows{{0, 2}, {3, 5}, {21, 30}});
  CHECK(without(w, {{0, 10}, {29, 30}}) == idle_windows{{20, 29}});
  CHECK(without(w, {{8, 22}}) == idle_windows{{0, 8}, {22, 30}});
  CHECK(total_s(without(w, {{2, 3}})) == 19);
}
