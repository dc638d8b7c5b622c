#include "studies/prefill_bubbles.hpp"

#include <catch2/catch.hpp>

#include "studies/prefill_simulation.hpp"

using namespace troupe;
using namespace troupe::studies;

TEST_CASE("shares of bubbles are of all devices' time, and prefills count inside of bubbles") {
  bubble_tally tally;
  tally.add(10, {{0, 2}, {5, 8}}, {{0, 1}, {5, 9}}, 4);  // 1 s of [5, 9) is the training's
  tally.add(10, {{0, 2}}, {}, 1);
  const auto s = tally.shares();
  CHECK(s.prefill == Approx(4 / 20.0));
  CHECK(s.upper_bound == Approx(5 / 20.0));
  CHECK(s.residual == Approx(3 / 20.0));
  CHECK(s.residual_bubbles == 2);
  CHECK(s.residual_s == Approx(1.5));
}

TEST_CASE("without devices there are no shares") {
  CHECK(bubble_tally{}.shares().prefill == 0);
  CHECK(bubble_shares_of({}, {}).residual_bubbles == 0);
}

TEST_CASE("a study counts neither a training's first iterations nor its last") {
  CHECK(counted_of(100).first == 2);
  CHECK(counted_of(100).end == 97);
  CHECK(counted_of(5).first == 2);
  CHECK(counted_of(5).end == 5);
  CHECK(counted_of(1).first == 0);
  CHECK(counted_of(0).end == 0);
}
