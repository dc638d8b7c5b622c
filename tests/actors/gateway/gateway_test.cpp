#include <algorithm>
#include <map>

#include "actors/gateway/gateways_fixture.hpp"
#include "harness/pattern.hpp"
#include "messages/base/random.hpp"
#include "messages/codec/codec.hpp"

using namespace troupe;
using namespace troupe::actors::tests;
using harness::is_pattern;
using harness::pattern;

namespace {

constexpr std::uint64_t tensor_bytes = 1'000'000;

tensor activation(std::uint32_t pipeline, std::uint32_t microbatch, wan_path path) {
  tensor t;
  t.from = {1, pipeline, 0};
  t.to_pipeline = pipeline, t.to_stage = 1;
  t.microbatch = microbatch;
  t.bytes = tensor_bytes;
  t.path = path;
  return t;
}

payload cut_piece(const payload& whole, random_source& random) {
  const auto from = random.below(3);
  return payload{whole.owner(), whole.bytes().subspan(1000 * from, 1000 * (3 - from))};
}

const wan_path alone{0, 1, 1, false, 0};

}  // namespace

TEST_CASE("a simulated tensor takes exactly its slots, over the WAN and inside a datacenter") {
  gateways_fixture w;
  w.world.at(3, [&] {
    REQUIRE(w.send(a0, b0, activation(0, 0, alone)));
    REQUIRE(w.send(a1, b1, activation(1, 0, {1, 1, 1, false, 0})));
    REQUIRE(w.send(b1, a1, activation(1, 7, {0, 2, 1, false, 0})));
    REQUIRE(w.send(b0, b1, activation(2, 0, {0, 0, 1, false, 0})));
  });
  w.world.run_until(10);
  CHECK(w.times(b0) == std::vector<double>{4});
  CHECK(w.times(b1) == std::vector<double>{3.5, 4});
  CHECK(w.times(a1) == std::vector<double>{3.5});
}

TEST_CASE("a tensor resent while its first copy is in flight crosses the WAN once") {
  gateways_fixture w;
  w.world.at(1, [&] { REQUIRE(w.send(a0, b0, activation(0, 0, alone))); });
  w.world.at(1.4, [&] { REQUIRE(w.send(a0, b0, activation(0, 0, alone))); });
  w.world.at(3, [&] { REQUIRE(w.send(a0, b0, activation(0, 0, alone))); });
  w.world.run_until(10);
  CHECK(w.times(b0) == std::vector<double>{2, 4});
}

TEST_CASE("tensors of one pair cross one after the other; connections and latency count") {
  auto c = slots();
  c->wan[0] = {0, 1, 500, 0.008, 0.002};
  gateways_fixture w{c};
  w.world.at(1, [&] {
    for (std::uint32_t i = 0; i < 3; ++i) REQUIRE(w.send(a0, b0, activation(0, i, {0, 1, 2})));
  });
  w.world.run_until(20);
  CHECK_THAT(w.times(b0), Catch::Approx(std::vector<double>{3.25, 5.25, 7.25}));
}

TEST_CASE("of serialized transfers that arrive at the same instant, the smallest rank goes first") {
  for (const bool swapped : {false, true}) {
    gateways_fixture w;
    w.world.at(2, [&, swapped] {
      for (const auto p : {swapped ? 1U : 0U, swapped ? 0U : 1U})
        REQUIRE(
            w.send(p == 0 ? a0 : a1, p == 0 ? b0 : b1, activation(p, 0, {0, 2, 1, true, 5 - p})));
    });
    // The first has just left when two more come, in the same nanosecond.
    w.world.at(2.5, [&] { REQUIRE(w.send(a0, b0, activation(0, 1, {0, 2, 1, true, 2}))); });
    w.world.run_until(9);
    CHECK(w.times(b1) == std::vector<double>{2.5});
    CHECK(w.times(b0) == std::vector<double>{3, 3.5});
  }
}

TEST_CASE("tensors that leave a node at the same time share its link, whatever their kind") {
  gateways_fixture w;
  w.world.at(0, [&] {
    for (std::uint32_t i = 0; i < 2; ++i) {
      auto t = activation(0, i, {0, 0, 1, false, 0});
      if (i == 1) t.what = tensor::kind::partial;
      t.to_stage = 0, t.to_pipeline = 1 + i;
      REQUIRE(w.send(a0, a1, t));
    }
    REQUIRE(w.send(a1, a0, activation(3, 0, {0, 0, 1, false, 0})));
  });
  w.world.run_until(9);
  CHECK(w.times(a1) == std::vector<double>{1, 1});
  CHECK(w.times(a0) == std::vector<double>{0.5});
}

TEST_CASE(
    "control messages take half the round trip between gateways, and do not wait for tensors") {
  auto c = slots();
  c->wan[0].rtt_ms = 500;
  gateways_fixture w{c};
  w.world.at(1, [&] {
    for (std::uint32_t i = 0; i < 5; ++i) REQUIRE(w.send(a0, b0, activation(0, i, alone)));
    REQUIRE(w.send(a0, b0, stage_run{{1, 0, 1}, 5, 0, {}, {}, {}}));
  });
  w.world.run_until(30);
  const auto runs = w.times<stage_run>(b0);
  REQUIRE(runs.size() == 1);
  CHECK(runs[0] < 1.3);
  CHECK(runs[0] >= 1.25);
  CHECK(w.tensors(b0).size() == 5);
}

TEST_CASE("a node's credit returns when its transfers have left, not earlier") {
  runtime::virtual_options o;
  o.credit_frames = 10;
  gateways_fixture w{slots(), o};
  std::uint32_t sent = 0;
  const auto fill = [&] {
    while (w.send(a0, b0, activation(0, sent, alone))) ++sent;
  };
  w.world.at(0.5, fill);
  w.world.at(1.4, fill);
  w.world.at(2.6, [&] {
    CHECK(sent == 10);
    fill();
    CHECK(sent == 12);
  });
  w.world.run_until(20);
  const auto all = w.tensors(b0);
  REQUIRE(all.size() == 12);
  for (std::uint32_t i = 0; i < 12; ++i) CHECK(all[i].what.microbatch == i);
}

TEST_CASE(
    "a gateway holds a bounded number of a node's frames, so that its control messages get "
    "through") {
  runtime::virtual_options o;
  o.credit_frames = 1000;
  gateways_fixture w{slots(), o};
  std::uint32_t sent = 0;
  w.world.at(0, [&] {
    while (sent < 1000 && w.send(a0, b0, activation(0, sent, alone))) ++sent;
  });
  w.world.at(0.5, [&] {
    CHECK(sent == 1000);
    for (std::uint32_t i = 0; i < 1000 - 512; ++i)
      REQUIRE(w.send(a0, controller_address, node_report{}));
  });
  w.world.run_until(1100);
  CHECK(std::ranges::count(w.sent, controller_address, &sent_message::to) >= 1000 - 512);
  CHECK(w.tensors(b0).size() == 1000);
}

TEST_CASE("bodies of any size and path are unchanged after striping and reassembly") {
  auto c = slots();
  c->wan[0] = {0, 1, 40, 5, 0.5};
  gateways_fixture w{c};
  const std::vector<std::size_t> sizes{1, 2, 4095, 4096, 100'000, 1'000'001, 8'000'000};
  std::uint32_t microbatch = 0;
  w.world.at(0, [&] {
    for (const auto size : sizes)
      for (const auto& path : {wan_path{0, 1, 1}, {0, 2, 16}, {3, 5, 7, true, 1}}) {
        auto t = activation(0, microbatch++, path);
        t.bytes = size;
        t.to_pipeline = path.connections;  // each path its own flow: three queues
        REQUIRE(w.send(a0, b0, t, pattern(size)));
      }
  });
  w.world.run_until(100);
  REQUIRE(w.tensors(b0).size() == microbatch);
  std::map<std::uint32_t, std::uint32_t> last;
  for (const auto& r : w.tensors(b0)) {
    CHECK(r.body.bytes().size() == r.what.bytes);
    CHECK(is_pattern(r.body));
    CHECK((!last.contains(r.what.to_pipeline) || last[r.what.to_pipeline] < r.what.microbatch));
    last[r.what.to_pipeline] = r.what.microbatch;
  }
}

TEST_CASE("tensors arrive intact on a network that loses, duplicates and reorders frames") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    runtime::virtual_options o;
    o.seed = seed;
    o.faults.loss = 0.002;
    o.faults.duplication = 0.02;
    o.faults.reordering = 0.05;
    o.faults.reorder_delay_s = 0.01;
    auto c = slots();
    c->wan[0] = {0, 1, 40, 5, 0.5};
    gateways_fixture w{c, o};
    constexpr std::uint32_t tensors = 60;
    for (std::uint32_t i = 0; i < tensors; ++i)
      w.world.at(i * 0.05, [&w, i] {
        auto t = activation(0, i, {0, 2, 4, true, i});
        t.bytes = 10'000 + i;
        w.send(a0, b0, t, pattern(t.bytes));
      });
    w.world.run_until(60);
    std::uint32_t last = 0, misplaced = 0;
    CHECK(w.tensors(b0).size() > tensors / 3);
    for (const auto& r : w.tensors(b0)) {
      CHECK(is_pattern(r.body));
      misplaced += r.what.microbatch < last ? 1 : 0;
      last = r.what.microbatch;
    }
    // Between a node and its gateway, where there are no stripes.
    CHECK(misplaced <= 12);
  }
}

TEST_CASE("malformed stripes from a gateway do no harm, and valid tensors still arrive") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    gateways_fixture w{slots(), {}, false};
    random_source random{seed};
    const auto body = pattern(3000);
    std::uint32_t right = 0;
    for (int i = 0; i < 4000; ++i)
      w.world.at(1 + i * 0.001, [&, i] {
        stripe s;
        s.epoch = 5, s.transfer = random.below(20),
        s.count = 1 + static_cast<std::uint32_t>(random.below(3));
        s.index = static_cast<std::uint32_t>(random.below(4));
        s.from = b0, s.to = a0;
        s.what = activation(static_cast<std::uint32_t>(random.below(3)), 0, alone);
        s.what.bytes = 3000;
        s.offset = random.chance(0.5) ? 1000 * s.index : random.next();
        if (random.chance(0.1)) s.to = static_cast<address>(random.below(10));
        if (random.chance(0.1)) s.from = static_cast<address>(random.below(10));
        if (random.chance(0.1)) s.count = static_cast<std::uint32_t>(random.next());
        if (random.chance(0.1)) s.what.bytes = random.next();
        auto f = encode(dc2, dc1, s, cut_piece(body, random));
        if (random.chance(0.3)) {  // not a valid stripe at all
          std::vector<std::byte> bytes{f.header.bytes().begin(), f.header.bytes().end()};
          for (int n = 0; n < 3; ++n)
            bytes[5 + random.below(bytes.size() - 5)] = static_cast<std::byte>(random.next());
          f.header = payload{std::move(bytes)};
        }
        w.nets[dc2]->send(dc1, std::move(f), 1);
        if (i % 100 != 0) return;
        s.epoch = 9, s.transfer = right++, s.count = 1, s.index = 0, s.offset = 0;
        s.from = b1, s.to = a1;
        s.what = activation(77, 0, alone);
        s.what.bytes = 3000;
        w.nets[dc2]->send(dc1, encode(dc2, dc1, s, body), 1);
      });
    w.world.run_until(60);
    CHECK(w.tensors(a1).size() >= right);
    for (const auto& r : w.tensors(a1))
      if (r.what.from.pipeline == 77) CHECK(is_pattern(r.body));
  }
}
