#include <catch2/catch.hpp>

#include <deque>
#include <map>
#include <vector>

#include "gpu/device/simulated_executor.hpp"
#include "messages/base/random.hpp"

using namespace troupe;
using namespace troupe::gpu;

namespace {

/// Runs of equal operations, one after the other.
class planned_guest final : public guest_work {
 public:
  run next(double) override { return runs.empty() ? run{} : runs.front(); }
  void execute(std::uint32_t count) override {
    REQUIRE(count <= runs.front().count);
    executed.push_back(count);
    if ((runs.front().count -= count) == 0) runs.pop_front();
  }

  std::deque<run> runs;
  std::vector<std::uint32_t> executed;
};

struct simulated {
  double now = 0;
  std::multimap<double, std::function<void()>> timers;
  std::size_t events = 0;
  std::shared_ptr<planned_guest> guest = std::make_shared<planned_guest>();
  simulated_executor device{
      [this] { return now; },
      [this](double s, std::function<void()> what) { timers.emplace(now + s, std::move(what)); }};

  simulated() { device.lend(guest); }
  void idle_until(double t) { device.idle_for(t - now); }
  void run_until(double t) {
    while (!timers.empty() && timers.begin()->first <= t) {
      const auto first = timers.begin();
      now = first->first;
      const auto what = std::move(first->second);
      timers.erase(first);
      ++events;
      what();
    }
    now = t;
  }
};

using counts = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("A simulated guest's operations that fit a window are one event") {
  simulated s;
  s.guest->runs = {{100, 0.5}};
  s.device.set_guard(0.25);
  s.run_until(1);
  CHECK(s.guest->executed.empty());
  s.idle_until(11.5);  // 10.25 s without the guard
  s.run_until(11.25);
  CHECK(s.guest->executed == counts{20});
  CHECK(s.events == 1);
  s.run_until(12);
  CHECK(s.device.busy() == 0);
  s.idle_until(14.5);
  s.run_until(20);
  CHECK(s.guest->executed == counts{20, 4});
  const auto c = s.device.take_counts();
  CHECK(c.guest_steps == 24);
  CHECK(c.guest_s == 12);
  CHECK(c.delayed == 0);
  REQUIRE(c.intervals.size() == 2);
  CHECK(c.intervals[0].begin_s == 1);
  CHECK(c.intervals[0].end_s == 11);
  CHECK(c.intervals[1].begin_s == 12);
  CHECK(c.intervals[1].end_s == 14);
  CHECK(c.taken_s == 20);
}

TEST_CASE("A training that is ready too early waits for the operation that has begun") {
  simulated s;
  s.guest->runs = {{100, 0.5}};
  s.idle_until(20);
  s.run_until(2.125);
  CHECK(s.device.busy() == 0.375);
  CHECK(s.guest->executed == counts{4});
  s.run_until(3);
  CHECK(s.guest->executed == counts{4, 1});
  s.idle_until(4);
  s.run_until(3.5);  // just as one has ended
  CHECK(s.device.busy() == 0);
  s.run_until(30);
  CHECK(s.guest->executed == counts{4, 1, 1});
  const auto c = s.device.take_counts();
  CHECK(c.delayed == 1);
  CHECK(c.delay_s == 0.375);
  CHECK(c.worst_delay_s == 0.375);
  CHECK_THAT(c.delays.quantile_s(1), Catch::Matchers::WithinRel(0.375, 0.2));
  CHECK(c.guest_steps == 6);
}

TEST_CASE("A simulated guest that gets work in a window uses the rest of it") {
  simulated s;
  s.idle_until(10);
  s.run_until(6);
  s.guest->runs = {{2, 0.5}, {100, 1}};
  s.device.wake();
  s.device.wake();
  s.run_until(10);
  CHECK(s.guest->executed == counts{2, 3});
}

TEST_CASE("A window that becomes shorter ends a guest's run, and a longer one goes on") {
  simulated s;
  s.guest->runs = {{100, 1}};
  s.idle_until(10);
  s.run_until(2.5);
  s.idle_until(5);
  s.run_until(9);
  CHECK(s.guest->executed == counts{2, 3});
  s.idle_until(12);
  s.run_until(20);
  CHECK(s.guest->executed == counts{2, 3, 3});
  CHECK(s.device.take_counts().delayed == 0);
}

TEST_CASE("A device that is lent to another guest forgets the first one's operations") {
  simulated s;
  s.guest->runs = {{100, 1}};
  s.idle_until(10);
  s.run_until(2.5);
  const auto other = std::make_shared<planned_guest>();
  other->runs = {{2, 1}};
  s.device.lend(other);
  s.run_until(20);
  CHECK(s.guest->executed.empty());
  CHECK(other->executed == counts{2});
  s.device.lend(nullptr);
  s.idle_until(30);
  CHECK(s.device.busy() == 0);
}

TEST_CASE("No simulated operation of a guest overlaps one of the training, whatever is predicted") {
  random_source random{7};
  for (int round = 0; round < 300; ++round) {
    simulated s;
    for (int i = 0; i < 5; ++i)
      s.guest->runs.push_back({static_cast<std::uint32_t>(1 + random.below(9)), random.uniform()});
    double used = 0;
    for (int i = 0; i < 10; ++i) {
      const double begin = s.now, length = random.uniform() * 3;
      s.device.idle_for(length * (0.5 + random.uniform()));
      if (random.below(3) == 0) s.device.idle_for(length * (0.5 + random.uniform()));
      s.run_until(begin + length);
      const double wait = s.device.busy();
      REQUIRE(wait >= 0);
      REQUIRE(wait <= 1);
      s.run_until(s.now + wait + 1e-9);
      const auto c = s.device.take_counts();
      REQUIRE(c.guest_s <= s.now - begin + 1e-6);
      REQUIRE(c.delayed == (wait > 0 ? 1 : 0));
      used += c.guest_s;
      const auto executed = s.guest->executed.size();
      s.run_until(s.now + random.uniform());  // the training computes
      REQUIRE(s.guest->executed.size() == executed);
    }
    CHECK(used > 0);
  }
}
