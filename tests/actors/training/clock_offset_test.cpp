#include "actors/training/trainer/clock_offset.hpp"

#include <catch2/catch.hpp>

using namespace troupe::actors;

namespace {

constexpr double theirs_s = 86'400;  // the other host has been up for a day longer

/// A question at `at_s`, with these ways there and back; the other takes a second to answer.
void exchange(clock_offset& c, double at_s, double there_s, double back_s,
              double ahead_s = theirs_s) {
  const double received_s = at_s + there_s + ahead_s;
  c.sample(at_s, received_s, received_s + 1, at_s + there_s + 1 + back_s);
}

}  // namespace

TEST_CASE("a clock offset is estimated to half the asymmetry of the fastest round trip") {
  clock_offset c;
  CHECK(c.due(0));
  exchange(c, 10, 0.050, 0.020);
  CHECK(c.ahead_s() == Approx(theirs_s + 0.015).margin(1e-6));
  CHECK_FALSE(c.due(20));
  exchange(c, 12, 0.020, 0.020);  // a quicker round trip is more precise
  CHECK(c.ahead_s() == Approx(theirs_s).margin(1e-6));
  exchange(c, 14, 0.300, 0.020);  // and a slower one nothing
  CHECK(c.ahead_s() == Approx(theirs_s).margin(1e-6));
}

TEST_CASE("the clock offset follows a drifting clock") {
  clock_offset c;
  exchange(c, 10, 0.010, 0.010);
  CHECK(c.due(100));
  exchange(c, 100, 0.030, 0.030, theirs_s + 0.009);
  CHECK(c.ahead_s() == Approx(theirs_s + 0.009).margin(1e-6));
}

TEST_CASE("processes that share a clock have an offset of 0, whatever the latencies") {
  clock_offset c;
  exchange(c, 1e6, 0.5, 0.0, 0);
  CHECK(c.ahead_s() == 0);
  exchange(c, 1e6 + 2, 0, 0, 0);
  CHECK(c.ahead_s() == 0);
}
