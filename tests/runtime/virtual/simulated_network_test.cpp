#include "runtime/virtual/simulated_network.hpp"

#include <catch2/catch.hpp>

#include "messages/base/fair_share.hpp"
#include "runtime/virtual/world_fixture.hpp"

using namespace troupe;
using namespace troupe::runtime;
using namespace troupe::runtime::tests;

TEST_CASE("transfers that share a link each get an equal share") {
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

TEST_CASE("a transfer gets at most the rate of one connection") {
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

TEST_CASE("a link shared by many transfers carries exactly its rate") {
  fair_share link{1e9, 0};
  random_source random{5};
  double total = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const double bytes = static_cast<double>(1 + random.below(10'000));
    total += bytes;
    link.start(0, bytes, i);
  }
  time_ns last = 0;
  std::size_t n = 0;
  while (auto end = link.next_end()) {
    REQUIRE(*end >= last);
    last = *end;
    while (link.take_ended(last)) ++n;
  }
  CHECK(n == 1000);
  CHECK(static_cast<double>(last) == Approx(total).epsilon(1e-3));
}

TEST_CASE("a frame arrives after the latency and the time of its bytes") {
  fixture f;
  for (address a : {controller, east, west, n0, n2, client}) f.add(a);
  SECTION("within a datacenter") {
    f.send(n0, controller, 1, 1'000'000);
    f.world.run_until(1);
    // The node's own 5 us and 80 Gbit/s, to its gateway only.
    REQUIRE(f.got(east).size() == 1);
    CHECK(f.got(controller).empty());
    CHECK(f.got(east)[0].at_s ==
          Approx(5e-6 + static_cast<double>(f.sent_bytes) / 10e9).margin(1e-9));
  }
  SECTION("between datacenters: half the round trip, and what one connection carries") {
    f.send(west, controller, 1, 1'000'000);
    f.world.run_until(1);
    REQUIRE(f.got(controller).size() == 1);
    CHECK(f.got(controller)[0].at_s ==
          Approx(0.020 + static_cast<double>(f.sent_bytes) / 0.5e9).margin(2e-9));
  }
  SECTION("between the controller and its own datacenter's gateway, and a client") {
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

TEST_CASE("concurrent transfers share the link between datacenters, each direction separately") {
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

TEST_CASE("a second transfer slows the first only from its own start") {
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

TEST_CASE("frames on a link keep their order without faults") {
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

TEST_CASE("loss drops about its share of frames, within its window only") {
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
  for (std::uint64_t n = 0; n < 1000; ++n) CHECK(f.send(east, controller, n));
  f.world.run_until(1);
  const auto c = f.world.count().network;
  CHECK(c.duplicated > 400);
  CHECK(c.duplicated < 600);
  CHECK(f.got(controller).size() == 1000 + c.duplicated);
}

TEST_CASE("reordering lets frames overtake each other by no more than its delay") {
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

TEST_CASE(
    "a partition cuts its two sides apart in both directions while it lasts, and no other hosts") {
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
  // Frames in flight when the link was cut (20 ms before) are lost too.
  CHECK(f.numbers(controller) == std::vector<std::uint64_t>{500, 2500});
  CHECK(f.numbers(east) == std::vector<std::uint64_t>{500, 985, 1500, 2500});
  CHECK(f.got(west).size() == 2 + 4);
  CHECK(f.world.count().network.cut == 4);
}

TEST_CASE("a partition without a second side cuts its hosts off from all others") {
  fixture f{{.faults = plan_with([](fault_plan& p) { p.partitions = {{{"n0"}, {}, 0, 1}}; })}};
  for (address a : {controller, east, n0, n1}) f.add(a);
  f.send(n0, controller, 1);
  f.send(n1, controller, 2);
  f.world.run_until(0.5);
  CHECK(f.numbers(east) == std::vector<std::uint64_t>{2});
}

TEST_CASE("a frame to a host that is down or cut off counts as sent") {
  fixture f{{.faults = plan_with([](fault_plan& p) {
               p.partitions = {{{"west"}, {"controller"}, 0, 1}};
             })}};
  for (address a : {controller, east, west}) f.add(a);
  f.world.run_until(0.5);
  CHECK(f.send(controller, west, 1));
  CHECK(f.world.count().network.cut == 1);
  f.world.crash(east);
  CHECK(f.send(controller, east, 2));
  CHECK(f.world.count().network.unreachable == 1);
  f.world.run_until(2);
  CHECK(f.got(west).empty());
  CHECK(f.got(east).empty());
}

TEST_CASE("a sender whose frames are not handled runs out of credit") {
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

/// Hosts that keep received frames until the test marks them as handled.
struct keeping : fixture {
  using fixture::fixture;
  void keep(address a) {
    world.add_host(a, [this, a](const host& h) {
      nets[a] = h.net;
      h.net->listen([this, a](frame x) { kept[a].push_back(std::move(x)); });
      return std::vector<caf::actor>{};
    });
  }
  /// How many more frames may be sent.
  int credit(address from, address to) {
    int n = 0;
    while (n < 100 && send(from, to)) ++n;
    return n;
  }
  std::map<address, std::vector<frame>> kept;
};

}  // namespace

TEST_CASE("credit for frames lost in a partition is returned") {
  keeping f{{.faults = plan_with([](fault_plan& p) {
               p.partitions = {{{"west"}, {"controller"}, 1, 2}};
             }),
             .credit_frames = 5}};
  for (address a : {controller, west}) f.keep(a);
  f.world.run_until(0.99);
  CHECK(f.credit(west, controller) == 5);
  f.world.run_until(3);
  CHECK(f.kept[controller].empty());
  CHECK(f.credit(west, controller) == 5);
}

TEST_CASE("credit restarts with either host, and frames from before the restart return none") {
  keeping f{{.credit_frames = 5}};
  for (address a : {controller, east, west}) f.keep(a);
  CHECK(f.credit(west, controller) == 5);
  CHECK(f.credit(east, controller) == 5);
  f.world.run_until(1);
  f.world.crash(west);
  f.world.restart(west);
  CHECK(f.credit(west, controller) == 5);
  CHECK(f.credit(east, controller) == 0);
  const auto old = f.nets[controller];
  f.world.crash(controller);  // five frames of west are in flight
  f.world.restart(controller);
  CHECK(f.credit(west, controller) == 5);
  CHECK(f.credit(east, controller) == 5);
  old->handled(f.kept[controller][0]);
  CHECK(f.credit(west, controller) == 0);
  f.world.run_until(2);
  CHECK(f.credit(west, controller) == 0);
  CHECK(f.credit(east, controller) == 0);
}

TEST_CASE("without a credit limit no sender is held back") {
  keeping f{{.credit_frames = 0}};
  for (address a : {controller, east}) f.keep(a);
  CHECK(f.credit(east, controller) == 100);
  f.world.run_until(1);
  for (const auto& x : f.kept[controller]) f.nets[controller]->handled(x);
  CHECK(f.credit(east, controller) == 100);
}

TEST_CASE("a frame dropped by the test counts as sent and lost, and no other frame does") {
  fixture f{{.loses = [](address from, address to, const frame&) {
    return from == east && to == controller;
  }}};
  for (address a : {controller, east, west}) f.add(a);
  CHECK(f.send(east, controller, 1));
  CHECK(f.send(west, controller, 2));
  CHECK(f.send(controller, east, 3));
  f.world.run_until(1);
  CHECK(f.numbers(controller) == std::vector<std::uint64_t>{2});
  CHECK(f.numbers(east) == std::vector<std::uint64_t>{3});
  CHECK(f.world.count().network.lost == 1);
}

TEST_CASE("a fault lasts from its first moment until just before its last") {
  fixture f{{.faults = plan_with([](fault_plan& p) {
               p.from_s = 3;
               p.until_s = 4;
               p.loss = 1;
               p.partitions = {{{"east"}, {"controller"}, 1, 2}};
             })}};
  for (address a : {controller, east}) f.add(a);
  for (const double t : {1.0, 2.0, 3.0, 4.0})
    f.world.at(t, [&, t] { f.send(east, controller, static_cast<std::uint64_t>(t)); });
  f.world.run_until(5);
  CHECK(f.numbers(controller) == std::vector<std::uint64_t>{2, 4});
  CHECK(f.world.count().network.cut == 1);
  CHECK(f.world.count().network.lost == 1);
}

namespace {

frame a_block(address from, address to, std::uint64_t bytes, std::size_t body = 0) {
  prefill_block b;
  b.bytes = bytes;
  return encode(from, to, b, zeros(body));
}

frame a_tensor(address from, address to, std::uint32_t to_stage, std::uint64_t bytes) {
  tensor t;
  t.to_stage = to_stage;
  t.bytes = bytes;
  return encode(from, to, t);
}

/// Two nodes of one datacenter, and the gateway between them, which passes frames on.
struct two_nodes : fixture {
  std::vector<double> tensors_s, blocks_s;  // arrivals at n1

  explicit two_nodes(virtual_options o = {}) : fixture{o} {
    add(n0);
    add(east, [](const host& me, const frame& f) {
      const auto e = peek(f.header.bytes());
      me.net->send(e->to, f, lane_of_type(e->type));
    });
    add(n1, [this](const host& me, const frame& f) {
      const bool block = peek(f.header.bytes())->type == type_id<prefill_block>;
      (block ? blocks_s : tensors_s).push_back(me.clock->now_s());
    });
  }
  bool block(std::uint64_t bytes, std::size_t body = 0) {
    return nets[n0]->send(n1, a_block(n0, n1, bytes, body), prefill_lane);
  }
  bool tensor_to(std::uint32_t stage, std::uint64_t bytes) {
    return nets[n0]->send(n1, a_tensor(n0, n1, stage, bytes), tensor_lane);
  }
};

}  // namespace

TEST_CASE("a prefill's block takes the time of its bytes on its node's link, one after the other") {
  two_nodes f;  // 80 Gbit/s: 10 bytes a nanosecond; 5 us
  REQUIRE(f.block(1'000'000));
  REQUIRE(f.block(500'000, 64));  // the header's bytes count, as for tensors
  f.world.run_until(1);
  CHECK(f.got(east).size() == 2);
  REQUIRE(f.blocks_s.size() == 2);
  CHECK(f.blocks_s[0] == Approx(100e-6 + 5e-6).margin(1e-9));
  CHECK(f.blocks_s[1] == Approx(150e-6 + 5e-6).margin(1e-9));
}

TEST_CASE("a block waits while tensors leave its node, and goes on where it was") {
  two_nodes f;
  REQUIRE(f.block(1'000'000));                             // 100 us
  f.world.at(40e-6, [&] { f.tensor_to(1, 2'000'000); });   // until 240 us
  f.world.at(140e-6, [&] { f.tensor_to(2, 1'000'000); });  // shares from 140 us on: until 340 us
  f.world.at(150e-6, [&] { f.block(100'000); });           // behind the first block
  f.world.run_until(1);
  REQUIRE(f.tensors_s.size() == 2);
  CHECK(f.tensors_s[0] == Approx(340e-6 + 5e-6).margin(1e-9));
  CHECK(f.tensors_s[1] == Approx(340e-6 + 5e-6).margin(1e-9));
  REQUIRE(f.blocks_s.size() == 2);
  CHECK(f.blocks_s[0] == Approx(400e-6 + 5e-6).margin(1e-9));  // 60 us were left
  CHECK(f.blocks_s[1] == Approx(410e-6 + 5e-6).margin(1e-9));
}

TEST_CASE("tensors arrive at the same nanosecond whatever blocks leave their node") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    std::vector<std::vector<double>> arrivals;
    std::size_t blocks = 0;
    for (const bool with_blocks : {false, true}) {
      two_nodes f;
      random_source of_tensors{seed}, of_blocks{seed + 1000};
      for (int i = 0; i < 40; ++i) {
        const double at_s = static_cast<double>(of_tensors.below(2'000'000)) * 1e-9;
        const auto stage = static_cast<std::uint32_t>(of_tensors.below(3));
        const auto bytes = of_tensors.below(3'000'000);
        f.world.at(at_s, [&f, stage, bytes] { f.tensor_to(stage, bytes); });
      }
      for (int i = 0; with_blocks && i < 80; ++i) {
        const double at_s = static_cast<double>(of_blocks.below(2'000'000)) * 1e-9;
        const auto bytes = of_blocks.below(400'000);
        f.world.at(at_s, [&f, bytes] { f.block(bytes); });
      }
      f.world.run_until(1);
      arrivals.push_back(f.tensors_s);
      blocks += f.blocks_s.size();
    }
    REQUIRE(arrivals[0].size() == 40);
    REQUIRE(arrivals[0] == arrivals[1]);
    REQUIRE(blocks == 80);
  }
}

TEST_CASE("blocks have credit of their own: as many as wait leave room for other frames") {
  virtual_options o;
  o.credit_frames = 10;
  two_nodes f{o};
  for (int i = 0; i < 10; ++i) REQUIRE(f.block(1'000'000));
  CHECK_FALSE(f.block(1));
  CHECK(f.send(n0, east, 1));
  f.world.run_until(1);
  CHECK(f.blocks_s.size() == 10);
  CHECK(f.block(1));  // they have been handled
}
