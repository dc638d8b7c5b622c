#include <catch2/catch.hpp>

#include <algorithm>

#include "messages/base/random.hpp"
#include "planners/bubbletea/step_clock.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

/// Two steps, the copy of the gradients and the update, of an iteration of 10 s.
const window_plan planned{{{1, 2}, {5, 6}, {6, 6}, {8, 9}}, 4, 10, 0, 0};

}  // namespace

TEST_CASE("A step clock knows nothing before an iteration has shown how long a step waits") {
  CHECK(step_clock{}.earliest_s(0, 0, 7) == 7);
  const step_clock c{planned};
  for (std::size_t k = 0; k < planned.operations + 1; ++k) CHECK(c.earliest_s(0, k, 7) == 7);
}

TEST_CASE("A step is expected after the planned gap, or after its smallest wait if that is less") {
  step_clock c{planned};
  c.waited(0, 1, 4);
  CHECK(c.earliest_s(0, 1, 100) == 103);  // 2 to 5
  c.waited(0, 1, 2.5);
  CHECK(c.earliest_s(0, 1, 100) == 102.5);
  c.waited(0, 1, 6);
  CHECK(c.earliest_s(0, 1, 100) == 102.5);
  SECTION("of the last eight iterations") {
    for (int i = 0; i < 6; ++i) c.waited(0, 1, 3.5);
    CHECK(c.earliest_s(0, 1, 100) == 102.5);
    c.waited(0, 1, 3.5);
    CHECK(c.earliest_s(0, 1, 100) == 103);
  }
  SECTION("so that one whose input was there once is not waited for") {
    c.waited(0, 1, 0);
    CHECK(c.earliest_s(0, 1, 100) == 100);
  }
}

TEST_CASE("The first step follows the update of the iteration before") {
  step_clock c{planned};
  c.waited(0, 0, 50);
  CHECK(c.earliest_s(0, 0, 100) == 102);  // 9 to 10 + 1
  c.waited(0, 3, 50);
  CHECK(c.earliest_s(0, 3, 100) == 102);  // 6 to 8
  c.waited(0, 2, 50);
  CHECK(c.earliest_s(0, 2, 100) == 100);  // they touch
}

TEST_CASE("New planned times keep what is known of waits, if the operations are the same") {
  step_clock c{planned};
  c.waited(0, 1, 4);
  c.plan({{{1, 2}, {4, 6}, {6, 6}, {8, 9}}, 4, 10, 0, 0});
  CHECK(c.earliest_s(0, 1, 100) == 102);
  c.plan({{{1, 2}, {4, 6}, {6, 6}}, 3, 10, 0, 0});
  CHECK(c.earliest_s(0, 1, 100) == 100);
}

TEST_CASE("After a barrier, and before one, iterations have times of their own") {
  // Three are shown: the first, those in between, the last of five. Then a wait of 7 s.
  const window_plan plan{{{1, 2}, {4, 5}, {12, 13}, {16, 17}, {22, 23}, {28, 29}}, 2, 10, 5, 7};
  CHECK(plan.shown() == 3);
  CHECK(plan.at(1, 0) == busy_time{12, 13});
  CHECK(plan.at(2, 0) == busy_time{22, 23});
  CHECK(plan.at(3, 1) == busy_time{36, 37});
  CHECK(plan.at(4, 1) == busy_time{48, 49});
  const double gaps[5][2] = {{7, 2}, {7, 3}, {5, 3}, {5, 3}, {5, 5}};
  for (std::uint64_t i = 0; i < 5; ++i)
    for (std::size_t k = 0; k < 2; ++k) CHECK(plan.gap_s(i, k) == gaps[i][k]);
  step_clock c{plan};
  c.waited(0, 1, 3);  // longer than planned
  CHECK(c.earliest_s(1, 1, 100) == 103);
  CHECK(c.earliest_s(4, 1, 100) == 105);
  c.waited(1, 1, 2.5);  // half a second shorter
  CHECK(c.earliest_s(2, 1, 100) == 102.5);
  CHECK(c.earliest_s(4, 1, 100) == 104.5);
  c.waited(2, 0, 9);
  CHECK(c.earliest_s(0, 0, 100) == 107);
}

TEST_CASE("A step clock agrees with one that remembers everything") {
  random_source random{5};
  for (int round = 0; round < 200; ++round) {
    std::vector<busy_time> busy;
    double t = random.uniform() * 2;
    for (std::uint64_t n = 1 + random.below(6); n > 0; --n) {
      const double end = t + random.uniform();
      busy.push_back({t, end});
      t = end + (random.below(3) == 0 ? 0 : random.uniform());
    }
    const double iteration_s = busy.back().end_s - random.uniform() * busy.front().begin_s;
    step_clock c{{busy, busy.size(), iteration_s, 0, 0}};
    std::vector<std::vector<double>> all(busy.size());
    for (int i = 0; i < 60; ++i) {
      const auto k = random.below(busy.size());
      const double w = random.uniform() * 2;
      c.waited(random.below(5), k, w);
      all[k].push_back(w);
      for (std::size_t q = 0; q < busy.size(); ++q) {
        double want = 1000;
        if (!all[q].empty()) {
          const double before = q > 0 ? busy[q - 1].end_s : busy.back().end_s - iteration_s;
          double min = std::max(0.0, busy[q].begin_s - before);
          for (std::size_t j = 0; j < all[q].size() && j < step_clock::remembered; ++j)
            min = std::min(min, all[q][all[q].size() - 1 - j]);
          want += min;
        }
        REQUIRE(c.earliest_s(random.below(5), q, 1000) == Approx(want).margin(1e-9));
      }
    }
  }
}

TEST_CASE("A delay budget doubles the guard, halves it, and pauses the guest for good") {
  delay_budget b{0.001, 0.01};
  const auto spend = [&](double share) {
    for (std::uint32_t i = 0; i < delay_budget::window; ++i) {
      CHECK_FALSE(b.paused());
      b.add_iteration(2, 2 * share);
    }
  };
  spend(0.01);  // exactly the budget
  CHECK(b.guard_s() == 0.001);
  spend(0.011);
  CHECK(b.guard_s() == 0.002);
  spend(0.039);
  CHECK(b.guard_s() == 0.004);
  spend(0.0026);  // neither too much nor little
  CHECK(b.guard_s() == 0.004);
  spend(0.0024);
  CHECK(b.guard_s() == 0.002);
  for (int i = 0; i < 8; ++i) spend(0);
  CHECK(b.guard_s() == 0.001 / 32);  // not below that
  spend(0.041);
  CHECK(b.paused());
}

TEST_CASE("A step clock may leave out the shortest waits, and then does not go by the plan") {
  step_clock c{planned};
  for (const double s : {4.0, 1.0, 9.0, 6.0}) c.waited(0, 1, s);
  CHECK(c.earliest_s(0, 1, 100) == 101);
  CHECK(c.earliest_s(0, 1, 100, 1) == 104);  // planned are 3
  CHECK(c.earliest_s(0, 1, 100, 2) == 106);
  CHECK(c.earliest_s(0, 1, 100, 3) == 109);
  CHECK(c.earliest_s(0, 1, 100, 7) == 109);
  CHECK(c.earliest_s(0, 0, 100, 2) == 100);  // nothing is known
}

TEST_CASE("Of a device whose waits vary the shortest are left out until there are delays") {
  delay_budget b{0.0008, 0.01, true};
  const auto spend = [&](double share) {
    for (std::uint32_t i = 0; i < delay_budget::window; ++i) b.add_iteration(2, 2 * share);
  };
  for (const double halved : {2, 4, 8, 16, 32}) {
    spend(0.002);
    CHECK(b.guard_s() == 0.0008 / halved);
    CHECK(b.leave_out() == 0);
  }
  for (const std::size_t left : {1, 2, 3, 4, 4}) {
    spend(0);
    CHECK(b.guard_s() == 0.000025);
    CHECK(b.leave_out() == left);
  }
  spend(0.011);
  CHECK(b.leave_out() == 3);
  spend(0.005);  // neither too much nor little
  CHECK(b.leave_out() == 3);
  SECTION("one that has delayed the training for long is as cautious as at first") {
    spend(0.5);
    CHECK(b.leave_out() == 0);
    CHECK(b.guard_s() == 0.0008);
    CHECK_FALSE(b.paused());
    SECTION("and paused if that does not help") {
      spend(0.05);
      CHECK_FALSE(b.paused());
      spend(0.05);
      CHECK(b.paused());
      const auto pause = [&] {  // windows
        std::uint32_t n = 0;
        for (; b.paused(); ++n) spend(0);
        return n;
      };
      CHECK(pause() == delay_budget::first_pause);
      for (std::uint32_t i = 0; i < delay_budget::patience; ++i) spend(0.05);
      CHECK(pause() == 2 * delay_budget::first_pause);
      spend(0.005);
      for (std::uint32_t i = 0; i < delay_budget::patience; ++i) spend(0.05);
      CHECK(pause() == 2 * delay_budget::first_pause);
    }
    SECTION("but not for three times in all") {
      spend(0.05);
      spend(0.005);
      spend(0.05);
      CHECK_FALSE(b.paused());
    }
  }
  SECTION("more delays first put back what was left out, then the guard") {
    for (const std::size_t left : {2, 1, 0}) {
      spend(0.02);
      CHECK(b.leave_out() == left);
      CHECK(b.guard_s() == 0.000025);
    }
    spend(0.02);
    CHECK(b.guard_s() == 0.0001);  // the least that helps
  }
}

TEST_CASE("A delay budget of nothing pauses at the first delay, and without delays never") {
  delay_budget none{0, 0};
  for (int i = 0; i < 100; ++i) none.add_iteration(1, 0);
  CHECK_FALSE(none.paused());
  for (int i = 0; i < 10; ++i) none.add_iteration(1, i == 3 ? 1e-6 : 0);
  CHECK(none.paused());
  delay_budget unguarded{0, 0.01};
  for (int i = 0; i < 10; ++i) unguarded.add_iteration(1, 0.02);
  CHECK(unguarded.guard_s() > 0);
}
