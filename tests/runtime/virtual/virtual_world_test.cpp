#include "runtime/virtual/virtual_world.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <map>
#include <set>

#include "runtime/journal/memory_journal.hpp"
#include "runtime/virtual/world_fixture.hpp"

using namespace troupe;
using namespace troupe::runtime;
using namespace troupe::runtime::tests;

TEST_CASE("frames in flight to a crashing host are lost, even if it is back before they arrive") {
  fixture f;
  for (address a : {controller, west}) f.add(a);
  f.send(controller, west, 1);  // arrives at 20 ms
  f.world.at(0.005, [&] { f.world.crash(west); });
  f.world.at(0.006, [&] { f.world.restart(west); });
  f.world.at(0.007, [&] { f.send(controller, west, 2); });
  f.world.run_until(1);
  CHECK(f.numbers(west) == std::vector<std::uint64_t>{2});
  CHECK(f.world.incarnation(west) == 2);
  CHECK(f.world.count().network.unreachable == 1);
}

TEST_CASE("a crashed host is silent: its timers are gone and its old transport sends nothing") {
  fixture f;
  f.add(controller);
  int ticks = 0;
  f.world.add_host(east, [&](const host& h) {
    auto a = f.world.system().spawn([&ticks, h](caf::event_based_actor* self) -> caf::behavior {
      self->delayed_send(self, std::chrono::seconds(1), 1);
      return {[&ticks, h, self](int) {
        ++ticks;
        h.net->send(controller, encode(h.self, controller, numbered(h.incarnation)));
        self->delayed_send(self, std::chrono::seconds(1), 1);
      }};
    });
    f.nets[east] = h.net;
    return std::vector<caf::actor>{a};
  });
  f.world.run_until(3.5);
  const auto old = f.nets[east];
  f.world.crash(east);
  CHECK_FALSE(f.world.is_up(east));
  f.world.run_until(10);
  CHECK(ticks == 3);
  CHECK_FALSE(old->send(controller, encode(east, controller, numbered(9))));
  f.world.restart(east);
  CHECK_FALSE(old->send(controller, encode(east, controller, numbered(9))));
  f.world.run_until(12.5);
  CHECK(ticks == 5);
  CHECK(f.numbers(controller) == std::vector<std::uint64_t>{1, 1, 1, 2, 2});
}

TEST_CASE("a timed crash hits the named host, or all hosts of the named datacenter") {
  fixture f{{.faults = plan_with([](fault_plan& p) {
               p.crashes = {{"west", 1, 2}, {"n0", 1.5, 0.1}};
             })}};
  for (address a : {controller, east, west, n0, n1, n2}) f.add(a);
  f.world.run_until(1.55);
  CHECK(f.world.is_up(controller));
  CHECK(f.world.is_up(east));
  CHECK(f.world.is_up(n1));
  CHECK_FALSE(f.world.is_up(west));
  CHECK_FALSE(f.world.is_up(n2));
  CHECK_FALSE(f.world.is_up(n0));
  f.world.run_until(1.7);
  CHECK(f.world.is_up(n0));
  f.world.run_until(3.1);
  CHECK(f.world.is_up(west));
  CHECK(f.world.incarnation(n2) == 2);
  CHECK(f.world.incarnation(n1) == 1);
}

TEST_CASE("random crashes come at their rate, in their window, and end") {
  fixture f{{.seed = 11, .faults = plan_with([](fault_plan& p) {
                           p.until_s = 180'000;
                           p.node_crashes_per_hour = 2;
                           p.mean_down_s = 60;
                         })}};
  for (address a : {controller, east, n0, n1}) f.add(a);
  f.world.run_until(400'000);
  const auto crashes = f.world.count().crashes;  // two nodes, fifty hours
  CHECK(crashes > 150);
  CHECK(crashes < 250);
  CHECK(f.world.incarnation(controller) == 1);
  CHECK(f.world.incarnation(n0) + f.world.incarnation(n1) == 2 + crashes);
  CHECK(f.world.is_up(n0));
  CHECK(f.world.is_up(n1));
}

TEST_CASE("clocks drift by at most the plan's fraction, each at its own rate") {
  fixture f{{.seed = 5, .faults = plan_with([](fault_plan& p) { p.clock_drift = 0.1; })}};
  const std::vector<address> all = {controller, east, west, n0, n1, n2};
  for (const auto a : all) f.add(a);
  std::map<address, double> begin_s;
  for (const auto a : all) begin_s[a] = f.hosts[a].clock->now_s();
  f.world.run_until(100);
  std::set<double> rates;
  bool slow = false, fast = false;
  for (const auto a : all) {
    const double rate = (f.hosts[a].clock->now_s() - begin_s[a]) / 100;
    rates.insert(rate);
    slow |= rate < 1;
    fast |= rate > 1;
    CHECK(rate >= 0.9);
    CHECK(rate <= 1.1);
    CHECK(f.hosts[a].clock->wall_s() == Approx(100));  // only the monotonic one drifts
  }
  CHECK(rates.size() == all.size());
  CHECK(slow);
  CHECK(fast);
}

TEST_CASE("wall clocks are off by at most the plan's seconds, and step only in its window") {
  fixture f{{.seed = 5, .faults = plan_with([](fault_plan& p) {
                          p.wall_skew_s = 50;
                          p.wall_steps_per_hour = 60;
                          p.from_s = 1000;
                          p.until_s = 4600;
                        })}};
  const std::vector<address> all = {controller, east, west, n0, n1, n2};
  for (const auto a : all) f.add(a);
  const auto ahead_s = [&](address a) { return f.hosts[a].clock->wall_s() - f.world.now_s(); };
  bool behind = false, before = false;
  for (const auto a : all) {
    behind |= ahead_s(a) < 0;
    before |= ahead_s(a) > 0;
  }
  CHECK(behind);
  CHECK(before);
  double seen_s = ahead_s(n0);
  std::size_t steps = 0, early = 0, late = 0;
  for (double t = 1; t < 6000; ++t) {
    f.world.run_until(t);
    CHECK(std::abs(ahead_s(n0)) <= 50.001);
    if (std::abs(ahead_s(n0) - seen_s) < 1e-6) continue;
    seen_s = ahead_s(n0);
    ++(t < 1000 ? early : t > 4600 ? late : steps);
  }
  CHECK(early == 0);
  CHECK(late == 0);
  CHECK(steps > 40);  // of sixty that are expected
  CHECK(steps < 80);
}

TEST_CASE("a slow node is slow in the plan's window only") {
  fixture f{{.faults = plan_with([](fault_plan& p) { p.slow_nodes = {{"n1", 3, 1, 2}}; })}};
  f.add(n1);
  CHECK(f.world.slowdown(n1) == 1);
  f.world.run_until(1.5);
  CHECK(f.world.slowdown(n1) == 3);
  CHECK(f.world.slowdown(n0) == 1);
  f.world.run_until(2.5);
  CHECK(f.world.slowdown(n1) == 1);
}

namespace {

job_ended ended(job_id n) {
  job_ended e;
  e.job = n;
  return e;
}

/// A controller that journals the numbers it receives and, if `early`, acts before they are
/// durable.
struct writer {
  explicit writer(fault_plan faults, bool early = false)
      : f{{.seed = 3, .faults = std::move(faults)}} {
    f.add(east);
    f.world.add_host(controller, [this, early](const host& h) {
      auto count = std::make_shared<std::uint64_t>(0);
      REQUIRE(h.journal->replay([count](const journal_entry&) { ++*count; }));
      replayed.push_back(*count);
      auto a = f.world.system().spawn(
          receive_frames, h, [this, count, early](const host& me, const frame& x) {
            const auto n = std::get<gateway_report>(decode(x.header.bytes())->second).sequence;
            const auto tell = [&] { me.net->send(east, encode(controller, east, numbered(n))); };
            if (early) tell();
            if (!me.journal->append(ended(n))) ++not_durable;
            if (!early) tell();
          });
      h.net->listen([a](frame x) { caf::anon_send(a, std::move(x)); });
      disk = h.journal;
      return std::vector<caf::actor>{a};
    });
  }
  std::vector<std::uint64_t> on_disk() {
    std::vector<std::uint64_t> r;
    REQUIRE(disk->replay([&](const journal_entry& e) { r.push_back(std::get<job_ended>(e).job); }));
    return r;
  }
  std::vector<std::uint64_t> replayed;
  std::uint64_t not_durable = 0;
  std::shared_ptr<journal> disk;
  fixture f;
};

}  // namespace

const fault_plan torn = plan_with([](fault_plan& p) {
  p.mean_down_s = 0.5;
  p.torn_append = 0.2;
});

TEST_CASE("a journal outlives its host's incarnations, and only the controller has one") {
  writer w{{}};
  CHECK(w.f.hosts[east].journal == nullptr);
  w.f.send(east, controller, 1);
  w.f.send(east, controller, 2);
  w.f.world.run_until(1);
  const auto old = w.disk;
  w.f.world.crash(controller);
  CHECK_FALSE(old->append(ended(99)));
  w.f.world.restart(controller);
  w.f.send(east, controller, 3);
  w.f.world.run_until(2);
  CHECK(w.replayed == std::vector<std::uint64_t>{0, 2});
  CHECK(w.on_disk() == std::vector<std::uint64_t>{1, 2, 3});
}

TEST_CASE("a torn append keeps nothing, confirms nothing and kills the host at once") {
  writer w{torn};
  for (std::uint64_t n = 0; n < 200; ++n)
    w.f.world.at(static_cast<double>(n), [&, n] { w.f.send(east, controller, n); });
  w.f.world.run_until(300);
  const auto n_torn = w.f.world.count().torn_appends;
  CHECK(n_torn > 10);
  CHECK(w.not_durable == n_torn);
  CHECK(w.replayed.size() == 1 + n_torn);
  CHECK(w.f.world.is_up(controller));
  // Everything sent to the gateway is on the disk, and vice versa.
  CHECK(w.on_disk() == w.f.numbers(east));
}

TEST_CASE("torn appends reveal an actor that acts before it journals") {
  writer w{torn, true};
  for (std::uint64_t n = 0; n < 200; ++n)
    w.f.world.at(static_cast<double>(n), [&, n] { w.f.send(east, controller, n); });
  w.f.world.run_until(300);
  CHECK(w.on_disk().size() + w.f.world.count().torn_appends == w.f.numbers(east).size());
}

namespace {

/// All hosts exchange frames, with all faults at once.
std::uint64_t chat(std::uint64_t seed, double until_s = 30) {
  fixture f{{.seed = seed, .faults = plan_with([](fault_plan& p) {
                             p.loss = 0.02;
                             p.duplication = 0.02;
                             p.reordering = 0.1;
                             p.reorder_delay_s = 0.1;
                             p.node_crashes_per_hour = 200;
                             p.gateway_crashes_per_hour = 100;
                             p.mean_down_s = 2;
                             p.partitions = {{{"west"}, {}, 5, 8}};
                           })}};
  const std::vector<address> all{controller, east, west, n0, n1, n2};
  for (address a : all)
    f.add(a, [](const host& me, const frame& x) {
      const auto e = peek(x.header.bytes());
      if (e->to != me.self) {
        me.net->send(e->to, x);
      } else {
        auto random = random_source{x.size() + me.incarnation};
        me.net->send(e->from,
                     encode(me.self, e->from, numbered(random.next()), zeros(random.below(2000))));
      }
    });
  for (int i = 0; i < 200; ++i)
    f.world.at(i * 0.1, [&f, i] {
      const address nodes[] = {n0, n1, n2};
      f.send(nodes[i % 3], controller, static_cast<std::uint64_t>(i));
    });
  f.world.run_until(until_s);
  REQUIRE(f.world.count().delivered > 1000);
  return f.world.fingerprint();
}

}  // namespace

TEST_CASE("the same seed gives the same fingerprint, another seed another one") {
  const auto first = chat(1);
  CHECK(first == chat(1));
  CHECK(first != chat(2));
  CHECK(first != chat(1, 15));
}

TEST_CASE("a world is destroyed while its hosts exchange frames and its timers run") {
  auto f = std::make_unique<fixture>();
  for (address a : {controller, west})
    f->add(a, [](const host& me, const frame& x) {
      me.net->send(peek(x.header.bytes())->from,
                   encode(me.self, peek(x.header.bytes())->from, numbered(0)));
    });
  f->send(controller, west);
  f->world.run_until(10.005);
  CHECK(f->world.count().delivered == 500);
}

TEST_CASE("running until a condition holds stops at the event that fulfils it") {
  fixture f;
  for (address a : {controller, west}) f.add(a);
  f.world.at(3, [&] { f.send(controller, west, 1); });
  CHECK(f.world.run_until([&] { return !f.got(west).empty(); }, 100));
  CHECK(f.world.now_s() == Approx(3.02).epsilon(1e-6));
  CHECK_FALSE(f.world.run_until([&] { return f.got(west).size() == 2; }, 10));
  CHECK(f.world.now_s() == 10);
}

TEST_CASE("each host has its own wall clock, and setting it leaves the monotonic clock alone") {
  fixture f;
  std::map<address, host> at;
  for (address a : {n0, n1})
    f.world.add_host(a, [&at, a](const host& h) {
      at[a] = h;
      return std::vector<caf::actor>{};
    });
  f.world.run_until(5);
  f.world.set_wall_clock(n0, -3600);
  f.world.run_until(7);
  CHECK(at[n0].clock->now_s() == 7);
  CHECK(at[n0].clock->wall_s() == 7 - 3600);
  CHECK(at[n1].clock->wall_s() == 7);
  f.world.crash(n0);
  f.world.restart(n0);
  CHECK(at[n0].clock->wall_s() == 7 - 3600);
}

TEST_CASE("a simulated disk that has lost its newest entries, or has a flipped bit, is refused") {
  const auto disk = std::make_shared<memory_disk>();
  for (int run = 0; run < 2; ++run) {
    memory_journal j{disk};
    for (job_id n = 1; n <= 3; ++n) REQUIRE(j.append(ended(n)));
  }
  const auto replayed = [&] { return memory_journal{disk}.replay([](const journal_entry&) {}); };
  CHECK(replayed());
  for (std::size_t n = 1; n <= 7; ++n) {
    const auto whole = *disk;
    disk->lose_tail(n);
    CHECK_FALSE(replayed());
    *disk = whole;
  }
  random_source random{5};
  for (int i = 0; i < 20; ++i) {
    const auto whole = *disk;
    disk->flip_bit(random);
    CHECK_FALSE(replayed());
    *disk = whole;
  }
  CHECK(replayed());
}
