#include "runtime/virtual_world.hpp"

#include <caf/all.hpp>
#include <catch2/catch.hpp>

#include "messages/codec.hpp"
#include "runtime/fair_share.hpp"
#include "runtime/memory_journal.hpp"

using namespace troupe;
using namespace troupe::runtime;

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::frame)

namespace {

/// Two datacentres, 40 ms apart, of two nodes each: 8 Gbit/s between them, 4 Gbit/s a connection.
cluster two_sites() {
  cluster c;
  c.name = "two sites";
  c.gpus.resize(1);
  c.gpus[0].name = "A100";
  c.datacenters = {{"east", ""}, {"west", ""}};
  for (std::uint32_t i = 0; i < 4; ++i)
    c.nodes.push_back({"n" + std::to_string(i), i / 2, 0, 8, {"nvlink", 4800, 1}, {"ib", 80, 5}});
  c.wan = {{0, 1, 40, 8, 4}};
  return c;
}

/// What every host of the tests has: an actor that hands each frame to a function of the test.
struct inbox {
  struct arrival {
    double at_s = 0;
    address from = 0;
    std::uint64_t sequence = 0;
    std::size_t bytes = 0;
  };
  std::vector<arrival> frames;
};

caf::behavior receive_frames(caf::event_based_actor*, host h,
                             std::function<void(const host&, const frame&)> each) {
  return {[h, each](const frame& f) {
    each(h, f);
    h.net->handled(f);
  }};
}

/// A fault plan as a function fills it in.
template <class F>
fault_plan plan_with(F&& fill) {
  fault_plan f;
  fill(f);
  return f;
}

membership numbered(std::uint64_t n) {
  return {.incarnation = 1, .sequence = n, .present = {}};
}

payload zeros(std::size_t n) {
  return payload{std::vector<std::byte>(n)};
}

struct fixture {
  explicit fixture(virtual_options options = {}) : world{two_sites(), std::move(options)} {}

  /// Adds a host whose frames are noted in inboxes[a].
  void add(address a) {
    add(a, [](const host&, const frame&) {});
  }
  void add(address a, std::function<void(const host&, const frame&)> also) {
    world.add_host(a, [this, a, also](const host& h) {
      nets[a] = h.net;
      hosts[a] = h;
      auto self =
          world.system().spawn(receive_frames, h, [this, a, also](const host& me, const frame& f) {
            auto m = decode(f.header.bytes());
            REQUIRE(m);
            const auto* numbers = std::get_if<membership>(&m->second);
            inboxes[a].frames.push_back(
                {me.clock->now_s(), m->first.from, numbers ? numbers->sequence : 0, f.size()});
            also(me, f);
          });
      h.net->listen([self](frame f) { caf::anon_send(self, std::move(f)); });
      return std::vector<caf::actor>{self};
    });
  }
  bool send(address from, address to, std::uint64_t n = 0, std::size_t body = 0) {
    auto f = encode(from, to, numbered(n), zeros(body));
    sent_bytes = f.size();
    return nets[from]->send(to, std::move(f));
  }
  std::vector<inbox::arrival>& got(address a) { return inboxes[a].frames; }
  std::vector<std::uint64_t> numbers(address a) {
    std::vector<std::uint64_t> r;
    for (const auto& x : got(a)) r.push_back(x.sequence);
    return r;
  }

  std::map<address, inbox> inboxes;
  std::map<address, std::shared_ptr<transport>> nets;
  std::map<address, host> hosts;
  std::size_t sent_bytes = 0;
  virtual_world world;
};

constexpr address controller = 0, east = 1, west = 2, n0 = 3, n1 = 4, n2 = 5,
                  client = first_client_address + 1;

}  // namespace

TEST_CASE("transfers that share a link each get their part of it") {
  fair_share link{100e9, 0};  // 100 bytes a nanosecond
  link.start(0, 1000, 1);     // alone until 5: 500 done
  link.start(5, 1000, 2);     // 50 each; the first ends at 5 + 500 / 50 = 15
  CHECK(link.next_end() == 15);
  CHECK_FALSE(link.take_ended(14));
  CHECK(link.take_ended(15) == 1u);
  CHECK(link.next_end() == 20);  // the second has 500 left and 100 to itself
  CHECK(link.take_ended(20) == 2u);
  CHECK_FALSE(link.next_end());
}

TEST_CASE("no transfer gets more than one connection carries") {
  fair_share link{100e9, 40e9};
  CHECK(link.alone(400) == 10);
  link.start(0, 400, 1);
  link.start(0, 400, 2);
  CHECK(link.next_end() == 10);  // 80 of 100 used
  link.start(5, 400, 3);         // 33.3 each: the first two have 200 left, 6 more
  CHECK(link.next_end() == 11);
  CHECK(link.take_ended(11) == 1u);
  CHECK(link.take_ended(11) == 2u);
  CHECK(link.next_end() == 16);  // the third got 200 of 400, and now 40 a nanosecond
}

TEST_CASE("a link that is shared by many carries no more and no less than it can") {
  fair_share link{1e9, 0};
  random_source random{5};
  double total = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const double bytes = static_cast<double>(1 + random.below(10'000));
    total += bytes;
    link.start(0, bytes, i);
  }
  fair_share::time_ns last = 0;
  std::size_t n = 0;
  while (auto end = link.next_end()) {
    REQUIRE(*end >= last);
    last = *end;
    while (link.take_ended(last)) ++n;
  }
  CHECK(n == 1000);
  CHECK(static_cast<double>(last) == Approx(total).epsilon(1e-3));
}

TEST_CASE("a frame arrives after the latency and the time its bytes take") {
  fixture f;
  for (address a : {controller, east, west, n0, n2, client}) f.add(a);
  SECTION("within a datacentre") {
    f.send(n0, controller, 1, 1'000'000);
    f.world.run_until(1);
    // The node's own 5 us and 80 Gbit/s, to its gateway only.
    REQUIRE(f.got(east).size() == 1);
    CHECK(f.got(controller).empty());
    CHECK(f.got(east)[0].at_s ==
          Approx(5e-6 + static_cast<double>(f.sent_bytes) / 10e9).margin(1e-9));
  }
  SECTION("between datacentres: half the round trip, and what one connection carries") {
    f.send(west, controller, 1, 1'000'000);
    f.world.run_until(1);
    REQUIRE(f.got(controller).size() == 1);
    CHECK(f.got(controller)[0].at_s ==
          Approx(0.020 + static_cast<double>(f.sent_bytes) / 0.5e9).margin(2e-9));
  }
  SECTION("between the controller and its own datacentre's gateway, and a client") {
    f.send(controller, east, 1);
    f.send(controller, client, 2);
    f.world.run_until(1);
    CHECK(f.got(east)[0].at_s == Approx(50e-6).epsilon(0.01));
    CHECK(f.got(client)[0].at_s == Approx(100e-6).epsilon(0.01));
  }
  SECTION("the next hop gets it, whomever it is for") {
    f.send(controller, n2, 7);
    f.world.run_until(1);
    CHECK(f.numbers(west) == std::vector<std::uint64_t>{7});
    CHECK(f.got(n2).empty());
  }
}

TEST_CASE("concurrent transfers share the link between datacentres, and each direction by itself") {
  fixture f;
  for (address a : {controller, west}) f.add(a);
  // 1 GB/s in all, at most 0.5 GB/s each. Three at once: 1/3 GB/s each, 10 MB take 30 ms.
  const std::size_t body = 10'000'000;
  for (std::uint64_t n = 1; n <= 3; ++n) f.send(controller, west, n, body);
  f.send(west, controller, 4, body);
  f.world.run_until(1);
  const double bytes = static_cast<double>(f.sent_bytes);
  REQUIRE(f.got(west).size() == 3);
  for (const auto& a : f.got(west)) CHECK(a.at_s == Approx(0.020 + 3 * bytes / 1e9).margin(1e-7));
  CHECK(f.got(controller)[0].at_s == Approx(0.020 + bytes / 0.5e9).margin(1e-7));
}

TEST_CASE("a second transfer slows the first from when it comes, not before") {
  fixture f;
  for (address a : {controller, west}) f.add(a);
  const std::size_t body = 10'000'000;  // 20 ms alone
  f.send(controller, west, 1, body);
  for (std::uint64_t n = 2; n <= 4; ++n)
    f.world.at(0.010, [&, n] { f.send(controller, west, n, body); });
  f.world.run_until(1);
  const double bytes = static_cast<double>(f.sent_bytes);
  // Half is left; four share: 0.25 GB/s.
  REQUIRE(f.numbers(west) == std::vector<std::uint64_t>{1, 2, 3, 4});
  const double first_end = 0.010 + (bytes - 5e6) / 0.25e9;
  CHECK(f.got(west)[0].at_s == Approx(0.020 + first_end).margin(1e-6));
  // The others have moved 5 MB by then, and go on at 1/3 GB/s.
  CHECK(f.got(west)[3].at_s == Approx(0.020 + first_end + 5e6 / (1e9 / 3)).margin(1e-5));
}

TEST_CASE("frames that follow each other on a link keep their order when nothing goes wrong") {
  fixture f;
  for (address a : {controller, east, west}) f.add(a);
  std::vector<std::uint64_t> expected;
  for (std::uint64_t n = 1; n <= 200; ++n) {
    f.send(controller, west, n);
    f.send(controller, east, n);
    expected.push_back(n);
  }
  f.world.run_until(1);
  CHECK(f.numbers(west) == expected);
  CHECK(f.numbers(east) == expected);
  CHECK(f.world.count().delivered == 400);
}

TEST_CASE("loss loses about its share, within its window only") {
  fixture f{{.seed = 5, .faults = plan_with([](fault_plan& p) {
                          p.from_s = 1;
                          p.until_s = 2;
                          p.loss = 0.25;
                        })}};
  for (address a : {controller, east}) f.add(a);
  for (int i = 0; i < 3000; ++i)
    f.world.at(i * 1e-3, [&, i] { f.send(east, controller, static_cast<std::uint64_t>(i)); });
  f.world.run_until(4);
  const auto c = f.world.count().network;
  CHECK(c.lost > 200);
  CHECK(c.lost < 300);
  CHECK(c.delivered + c.lost == 3000);
  for (std::uint64_t n : f.numbers(controller)) CHECK((n < 3000));
  const auto got = f.numbers(controller);
  CHECK(std::count_if(got.begin(), got.end(), [](auto n) { return n < 1000 || n >= 2000; }) ==
        2000);
}

TEST_CASE("duplication delivers some frames twice") {
  fixture f{{.seed = 5, .faults = plan_with([](fault_plan& p) {
                          p.duplication = 0.5;
                          p.reorder_delay_s = 0.01;
                        })}};
  for (address a : {controller, east}) f.add(a);
  for (std::uint64_t n = 0; n < 1000; ++n) f.send(east, controller, n);
  f.world.run_until(1);
  const auto c = f.world.count().network;
  CHECK(c.duplicated > 400);
  CHECK(c.duplicated < 600);
  CHECK(f.got(controller).size() == 1000 + c.duplicated);
}

TEST_CASE("reordering lets frames overtake each other, by no more than its delay") {
  fixture f{{.seed = 5, .faults = plan_with([](fault_plan& p) {
                          p.reordering = 0.5;
                          p.reorder_delay_s = 0.01;
                        })}};
  for (address a : {controller, east}) f.add(a);
  for (std::uint64_t n = 0; n < 1000; ++n)
    f.world.at(static_cast<double>(n) * 1e-3, [&, n] { f.send(east, controller, n); });
  f.world.run_until(5);
  auto got = f.numbers(controller);
  REQUIRE(got.size() == 1000);
  CHECK_FALSE(std::is_sorted(got.begin(), got.end()));
  for (const auto& a : f.got(controller)) {
    const double late = a.at_s - static_cast<double>(a.sequence) * 1e-3;
    CHECK(late >= 50e-6);
    CHECK(late <= 0.01 + 51e-6);
  }
}

TEST_CASE("a partition cuts its two sides apart, both ways, and no others, while it lasts") {
  fixture f{{.faults = plan_with([](fault_plan& p) {
               p.partitions = {{{"west"}, {"controller"}, 1, 2}};
             })}};
  for (address a : {controller, east, west, n2}) f.add(a);
  for (double t : {0.5, 0.985, 1.5, 2.5})
    f.world.at(t, [&, t] {
      const auto n = static_cast<std::uint64_t>(t * 1000);
      f.send(controller, west, n);
      f.send(west, controller, n);
      f.send(controller, east, n);
      f.send(n2, controller, n);  // to its gateway, on the same side
    });
  f.world.run_until(5);
  // What was under way when the cable was cut (20 ms before) is lost too.
  CHECK(f.numbers(controller) == std::vector<std::uint64_t>{500, 2500});
  CHECK(f.numbers(east) == std::vector<std::uint64_t>{500, 985, 1500, 2500});
  CHECK(f.got(west).size() == 2 + 4);
  CHECK(f.world.count().network.cut == 4);
}

TEST_CASE("a partition without a second side cuts from all others") {
  fixture f{{.faults = plan_with([](fault_plan& p) { p.partitions = {{{"n0"}, {}, 0, 1}}; })}};
  for (address a : {controller, east, n0, n1}) f.add(a);
  f.send(n0, controller, 1);
  f.send(n1, controller, 2);
  f.world.run_until(0.5);
  CHECK(f.numbers(east) == std::vector<std::uint64_t>{2});
}

TEST_CASE(
    "what is on the way to a host that crashes is lost, also when it is back before it comes") {
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

TEST_CASE("a crashed host is silent: its timers are gone, its old transport sends nothing") {
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

TEST_CASE("timed crashes happen to the hosts that are named, and datacentres name all theirs") {
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
                           p.until_s = 360'000;
                           p.node_crashes_per_hour = 1;
                           p.mean_down_s = 60;
                         })}};
  for (address a : {controller, east, n0, n1}) f.add(a);
  f.world.run_until(400'000);
  const auto crashes = f.world.count().crashes;  // two nodes, a hundred hours
  CHECK(crashes > 150);
  CHECK(crashes < 250);
  CHECK(f.world.incarnation(controller) == 1);
  CHECK(f.world.incarnation(n0) + f.world.incarnation(n1) == 2 + crashes);
  CHECK(f.world.is_up(n0));
  CHECK(f.world.is_up(n1));
}

TEST_CASE("a slow node is slow while the plan says so") {
  fixture f{{.faults = plan_with([](fault_plan& p) { p.slow_nodes = {{"n1", 3, 1, 2}}; })}};
  f.add(n1);
  CHECK(f.world.slowdown(n1) == 1);
  f.world.run_until(1.5);
  CHECK(f.world.slowdown(n1) == 3);
  CHECK(f.world.slowdown(n0) == 1);
  f.world.run_until(2.5);
  CHECK(f.world.slowdown(n1) == 1);
}

TEST_CASE("credit: who is not answered for his frames may not send for ever") {
  fixture f{{.credit_frames = 10}};
  f.add(east);
  std::vector<frame> kept;
  f.world.add_host(controller, [&](const host& h) {
    f.nets[controller] = h.net;
    h.net->listen([&](frame x) { kept.push_back(std::move(x)); });
    return std::vector<caf::actor>{};
  });
  for (std::uint64_t n = 0; n < 10; ++n) CHECK(f.send(east, controller, n));
  CHECK_FALSE(f.send(east, controller, 10));
  f.world.run_until(1);
  CHECK(kept.size() == 10);
  CHECK_FALSE(f.send(east, controller, 11));
  for (int i = 0; i < 3; ++i) f.nets[controller]->handled(kept[static_cast<std::size_t>(i)]);
  for (std::uint64_t n = 0; n < 3; ++n) CHECK(f.send(east, controller, n));
  CHECK_FALSE(f.send(east, controller, 12));
  CHECK(f.world.count().network.refused == 3);
}

namespace {

job_ended ended(job_id n) {
  job_ended e;
  e.job = n;
  return e;
}

/// A controller that journals what it is told and, if `early`, acts before it has journalled.
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
            const auto n = std::get<membership>(decode(x.header.bytes())->second).sequence;
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

TEST_CASE("a torn append keeps nothing, tells nobody, and kills the host at once") {
  writer w{torn};
  for (std::uint64_t n = 0; n < 200; ++n)
    w.f.world.at(static_cast<double>(n), [&, n] { w.f.send(east, controller, n); });
  w.f.world.run_until(300);
  const auto n_torn = w.f.world.count().torn_appends;
  CHECK(n_torn > 10);
  CHECK(w.not_durable == n_torn);
  CHECK(w.replayed.size() == 1 + n_torn);
  CHECK(w.f.world.is_up(controller));
  // Whatever the gateway was told is on the disk, and the other way round.
  CHECK(w.on_disk() == w.f.numbers(east));
}

TEST_CASE("acting before journalling is found out by torn appends") {
  writer w{torn, true};
  for (std::uint64_t n = 0; n < 200; ++n)
    w.f.world.at(static_cast<double>(n), [&, n] { w.f.send(east, controller, n); });
  w.f.world.run_until(300);
  CHECK(w.on_disk().size() + w.f.world.count().torn_appends == w.f.numbers(east).size());
}

namespace {

/// Everybody chats with everybody, with all faults at once.
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

TEST_CASE("the same seed gives the same fingerprint, another seed another") {
  const auto first = chat(1);
  CHECK(first == chat(1));
  CHECK(first != chat(2));
  CHECK(first != chat(1, 29));
}

TEST_CASE("a world is destroyed while its hosts talk and its timers run") {
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

TEST_CASE("running until something holds stops at the event that made it so") {
  fixture f;
  for (address a : {controller, west}) f.add(a);
  f.world.at(3, [&] { f.send(controller, west, 1); });
  CHECK(f.world.run_until([&] { return !f.got(west).empty(); }, 100));
  CHECK(f.world.now_s() == Approx(3.02).epsilon(1e-6));
  CHECK_FALSE(f.world.run_until([&] { return f.got(west).size() == 2; }, 10));
  CHECK(f.world.now_s() == 10);
}
