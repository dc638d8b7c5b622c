#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>

#include "actors/training/stage_fixture.hpp"
#include "messages/wire/task_kind.hpp"

// A stage whose device is lent to a guest while it waits.

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;

namespace {

/// Records the stage's messages.
class scripted_executor final : public gpu::device_executor {
 public:
  void idle_for(double s) override { idle.push_back(s); }
  double busy() override {
    ++busies;
    return 0;
  }
  void set_guard(double s) override { guard = s; }
  void lend(std::shared_ptr<gpu::guest_work>) override {}
  void wake() override {}
  gpu::executor_counts take_counts() override { return std::exchange(counts, {}); }

  std::vector<double> idle;
  std::size_t busies = 0;
  double guard = -1;
  gpu::executor_counts counts;
};

/// Always has an operation.
class hungry final : public gpu::guest_work {
 public:
  explicit hungry(double s) : each_s{s} {}
  run next(double) override { return {1000, each_s}; }
  void execute(std::uint32_t count) override { executed += count; }

  double each_s;
  std::size_t executed = 0;
};

stage_setup lent(std::uint32_t stage) {
  auto s = one_of_three(stage);
  s.guest.emplace();
  s.guest->how.guard_ms = 2;
  // The tasks of the middle stage, by the times at which the test lets its inputs come: forwards at
  // 1 and 1.5, backwards at 3 and 4 behind their recomputes, and the update.
  s.guest->times = {
      {{1, 1.1}, {1.5, 1.6}, {1.6, 1.65}, {3, 3.2}, {3.2, 3.25}, {4, 4.2}, {4.2, 4.2}, {4.2, 4.23}},
      5};
  s.costs.gradient_bytes = 0;
  s.iterations = 20;
  return s;
}

/// An iteration of the middle stage, in which inputs come at these times of it.
struct inputs_at {
  double first = 1, second = 1.5, gradient = 3, last = 4, length = 5;
};
void iterate_middle(stage_fixture& s, std::uint64_t iteration, inputs_at at = {}) {
  const double begin = s.now_s();
  const auto until = [&](double t) { s.advance(begin + t - s.now_s()); };
  until(at.first);
  s.activation(iteration, 0);
  until(at.second);
  s.activation(iteration, 1);
  until(at.gradient);
  s.gradient(iteration, 0);
  until(at.last);
  s.gradient(iteration, 1);
  until(at.length);
}

stage_fixture::how with(std::shared_ptr<gpu::device_executor> e) {
  stage_fixture::how it;
  it.executor = [e](auto, auto) { return e; };
  return it;
}

bool near(double a, double b) {
  return std::abs(a - b) < 0.01;
}

}  // namespace

TEST_CASE("A stage lends its device once it knows how long it waits, and not for longer") {
  const auto e = std::make_shared<scripted_executor>();
  stage_fixture s{lent(1), with(e)};
  CHECK(e->guard == 0.002);
  s.run(20);
  iterate_middle(s, 0);
  CHECK(e->idle.empty());  // nothing is known of waits for other stages yet
  CHECK(e->busies == 7);   // six steps and the update
  iterate_middle(s, 1, {.gradient = 2.5});
  // Planned gaps: forwards 1.77 (from the update before) and 0.4, backwards 1.35 and 0.75.
  REQUIRE(e->idle.size() == 4);
  CHECK(near(e->idle[0], 0.4));
  CHECK(near(e->idle[1], 1.35));
  CHECK(near(e->idle[2], 0.75));
  CHECK(near(e->idle[3], 1.77));
  e->idle.clear();
  iterate_middle(s, 2);
  REQUIRE(e->idle.size() == 4);
  CHECK(near(e->idle[1], 0.85));  // the smallest wait
}

TEST_CASE(
    "A stage tells its gateway when an iteration begins, and the trainer what its guest did") {
  const auto e = std::make_shared<scripted_executor>();
  stage_fixture s{lent(1), with(e)};
  s.run(20);
  e->counts = {3, 0.5, 1, 0.25, 0.25};
  iterate_middle(s, 0);
  const auto signal = s.only<stage_signal>();
  CHECK(signal.stage == s.setup.name);
  CHECK(signal.trainer == s.setup.incarnation);
  CHECK(signal.iteration == 0);
  const auto used = *s.report().bubbles;
  CHECK(used.guest_steps == 3);
  CHECK(used.guest_s == 0.5);
  CHECK(used.delayed_steps == 1);
  CHECK(used.delay_s == 0.25);
  CHECK(used.guard_s == 0.002);
  CHECK_FALSE(used.paused);
  // It waits for the forward at 1.5 and the backwards at 3 and 4; what it computes lies between.
  REQUIRE(used.idle_s);
  CHECK(*used.idle_s > 1);
  CHECK(*used.idle_s < 5);
}

TEST_CASE("What a guest computes is in the stage's timeline, by the trainer's clock") {
  auto setup = lent(1);
  setup.trace = true;
  const auto e = std::make_shared<scripted_executor>();
  stage_fixture s{setup, with(e)};
  s.run(20);
  // On the executor's clock, which is far ahead: 3 and 2 s ago when they are taken.
  e->counts.intervals = {{7, 997, 998}};
  e->counts.taken_s = 1000;
  iterate_middle(s, 0);
  const auto r = s.report();
  const auto guest = std::ranges::find(r.tasks, index_of(task_kind::prefill), &timed_task::what);
  REQUIRE(guest != r.tasks.end());
  CHECK(guest->microbatch == 7);
  CHECK(near(guest->end_s - guest->begin_s, 1));
  CHECK(near(guest->begin_s, r.end_s - 3));
}

TEST_CASE("A guest that delays the training too often is paused until the next plan") {
  const auto e = std::make_shared<scripted_executor>();
  stage_fixture s{lent(1), with(e)};
  s.run(20);
  for (std::uint64_t i = 0; i < 10; ++i) {
    e->counts = {1, 0.1, 1, 1, 1};
    iterate_middle(s, i);
  }
  CHECK(e->paused());
  CHECK(s.report().bubbles->paused);
  e->idle.clear();
  iterate_middle(s, 10);
  CHECK(e->idle.empty());
}

TEST_CASE("A stage without a guest sends no signals") {
  auto setup = lent(1);
  setup.guest.reset();
  stage_fixture s{setup};
  s.run(20);
  iterate_middle(s, 0);
  CHECK(s.take<stage_signal>().empty());
  CHECK_FALSE(s.report().bubbles);
}

TEST_CASE("A training takes as long with a guest in all of its bubbles as without one") {
  const auto guest = std::make_shared<hungry>(0.003);
  stage_fixture::how it;
  it.executor = [&](auto now, auto after) {
    auto e = std::make_shared<gpu::simulated_executor>(now, after);
    e->lend(guest);
    return e;
  };
  stage_fixture with_guest{lent(1), it}, without{lent(1)};
  with_guest.run(20);
  without.run(20);
  for (std::uint64_t i = 0; i < 12; ++i) {
    const auto executed = guest->executed;
    iterate_middle(with_guest, i);
    iterate_middle(without, i);
    const auto a = with_guest.report(), b = without.report();
    CHECK(a.iteration == i + 1);
    CHECK(a.begin_s == b.begin_s);
    CHECK(a.end_s == b.end_s);
    CHECK(a.busy_s == b.busy_s);
    CHECK(a.bubbles->delayed_steps == 0);
    if (i > 1) CHECK(guest->executed - executed > 1000);  // of 1,166 that fit
  }
}

TEST_CASE("A step that is ready too early waits for the rest of one operation, and is counted") {
  const auto guest = std::make_shared<hungry>(0.3);
  stage_fixture::how it;
  it.executor = [&](auto now, auto after) {
    auto e = std::make_shared<gpu::simulated_executor>(now, after);
    e->lend(guest);
    return e;
  };
  stage_fixture s{lent(1), it};
  s.run(20);
  iterate_middle(s, 0);
  iterate_middle(s, 1);
  const auto usual = s.report();
  CHECK(usual.bubbles->delayed_steps == 0);
  iterate_middle(s, 2, {.gradient = 2.35});
  const auto delayed = s.report();
  // The wait is no part of the steps.
  CHECK(delayed.measured.recompute_s == Approx(usual.measured.recompute_s));
  CHECK(delayed.measured.backward_s == Approx(usual.measured.backward_s));
  const auto used = *delayed.bubbles;
  CHECK(used.delayed_steps == 1);
  CHECK(used.worst_delay_s > 0.05);
  CHECK(used.worst_delay_s <= 0.3);
  CHECK(used.delay_s == used.worst_delay_s);
}
