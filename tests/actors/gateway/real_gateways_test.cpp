#include <catch2/catch.hpp>

#include <algorithm>
#include <set>

#include "harness/emulated_link.hpp"
#include "harness/gateway_pair.hpp"
#include "harness/pattern.hpp"
#include "messages/base/random.hpp"
#include "runtime/host/stopwatch.hpp"
#include "runtime/host/wait.hpp"

// Two gateways' actors over real connections, on loopback and over an emulated link; the test plays
// the nodes and the controller.

using namespace troupe;
using namespace troupe::runtime;
using namespace troupe::harness;

namespace {

constexpr double long_s = 10;  // a limit, never a proof

gateway_pair_options over(const wan_link& w) {
  gateway_pair_options o;
  o.wan = w;
  return o;
}

/// Two gateways, on loopback by default.
struct two_gateways {
  explicit two_gateways(gateway_pair_options o) : gates{std::move(o)} {}

  static tensor head(std::uint32_t flow, std::uint32_t number, std::size_t size, wan_path path) {
    tensor t;
    t.from = {1, flow, 0};
    t.to_pipeline = flow, t.to_stage = 1;
    t.microbatch = number;
    t.bytes = size;
    t.path = path;
    return t;
  }

  void send(const tensor& t) {
    const auto body = pattern(t.bytes);
    REQUIRE(wait_until([&] { return gates.send(t, body); }, long_s));
  }

  /// The tensors that have reached the other node, once there are n; each body is checked.
  std::vector<tensor> arrived(std::size_t n) {
    REQUIRE(wait_until([&] { return gates.arrived() >= n; }, long_s));
    std::vector<tensor> all;
    for (const auto& a : gates.take()) {
      REQUIRE(a.body.bytes().size() == a.what.bytes);
      REQUIRE(is_pattern(a.body));
      all.push_back(a.what);
    }
    return all;
  }

  gateway_pair gates;
};

}  // namespace

TEST_CASE("tensors of 1 byte to 64 MB arrive unchanged over real connections") {
  two_gateways w{over({0, 1, 40, 5, 0.5})};
  const std::vector<std::size_t> sizes{1,         2,         1000,       4097,
                                       1'000'000, 8'388'608, 33'333'333, 64'000'000};
  std::uint32_t number = 0;
  for (const auto size : sizes) w.send(two_gateways::head(0, number++, size, {0, 2, 4}));
  auto all = w.arrived(sizes.size());
  REQUIRE(all.size() == sizes.size());
  std::ranges::sort(all, {}, &tensor::microbatch);  // a small one may overtake a large one
  for (std::uint32_t i = 0; i < all.size(); ++i) CHECK(all[i].microbatch == i);
  CHECK(all[3].path == wan_path{0, 2, 4});
}

TEST_CASE("hundreds of tensors of several flows arrive exactly once each") {
  two_gateways w{over({0, 1, 40, 5, 0.5})};
  random_source random{5};
  constexpr std::uint32_t tensors = 600, flows = 4;
  for (std::uint32_t i = 0; i < tensors; ++i)
    w.send(two_gateways::head(i % flows, i, random.below(200'000),
                              {i % flows, 1, 1 + i % flows * 3, i % flows == 3, i}));
  std::set<std::uint32_t> numbers;
  for (const auto& t : w.arrived(tensors)) {
    CHECK(t.to_pipeline == t.microbatch % flows);
    CHECK(numbers.insert(t.microbatch).second);
  }
  CHECK(numbers.size() == tensors);
}

TEST_CASE("an emulated link is no faster than its rate, connections and latency") {
  wan_link slow{0, 1, 100, 0.4, 0.1};
  slow.emulate = true;
  two_gateways w{over(slow)};
  constexpr std::size_t size = 500'000;  // 40 ms at 0.1 Gbit/s
  const auto takes = [&](std::uint32_t flow, std::uint32_t connections) {
    const stopwatch watch;
    for (std::uint32_t i = 0; i < 3; ++i)
      w.send(two_gateways::head(flow, i, size, {0, 1, connections}));
    w.arrived(3);
    return watch.s();
  };
  CHECK(takes(0, 1) >= 3 * 0.040 + 0.050);
  CHECK(takes(1, 2) >= 3 * 0.020 + 0.050);
  CHECK(takes(2, 8) >= 3 * 0.010 + 0.050);  // the pair's cap
}

TEST_CASE("on an emulated link, the serialized transfers of a cell cross one at a time") {
  wan_link slow{0, 1, 0, 0.1, 0};
  slow.emulate = true;
  two_gateways w{over(slow)};
  const stopwatch watch;
  // Four pipelines, each over the shares of all: 10 ms each, one after the other.
  for (std::uint32_t p = 0; p < 4; ++p)
    w.send(two_gateways::head(p, 0, 500'000, {0, 4, 1, true, 4 - p}));
  const auto all = w.arrived(4);
  CHECK(watch.s() >= 4 * 0.010);
  CHECK(all.size() == 4);
}

namespace {

/// Megabits per second over that many connections of a link that limits the window per round trip.
double goodput_mbps(const emulated_link& link, std::uint32_t connections) {
  gateway_pair_options o;
  o.wan = {0, 1, 20, 0, 0};
  o.lanes = connections;
  for (std::uint32_t side = 0; side < 2; ++side)
    o.listen[side] = "tcp://" + emulated_link::address(side) + ":*";
  o.inside = [&](std::uint32_t side, const auto& what) { link.inside(side, what); };
  two_gateways w{std::move(o)};
  const std::size_t size = std::size_t{100'000} * connections;
  constexpr std::uint32_t tensors = 24, warm_up = 6;
  for (std::uint32_t i = 0; i < tensors; ++i)
    w.send(two_gateways::head(0, i, size, {0, 1, connections}));
  REQUIRE(wait_until([&] { return w.gates.arrived() == tensors; }, long_s));
  const auto all = w.gates.take();
  for (std::uint32_t i = 0; i < tensors; ++i) {
    CHECK(all[i].what.microbatch == i);
    CHECK(is_pattern(all[i].body));
  }
  return size * 8e-6 * (tensors - warm_up) / (all.back().at_s - all[warm_up - 1].at_s);
}

}  // namespace

TEST_CASE(
    "over a real link with limited TCP windows, tensors arrive intact and connections add up") {
  emulated_link_options o;
  o.gbps = 0.3;
  o.delay_ms = 10;
  const auto link = emulated_link::make(o);
  if (!link) {
    WARN("skipped: " << link.error().text);
    return;
  }
  const double window_mbps = o.window_gbps() * 1000;
  const double one = goodput_mbps(**link, 1), four = goodput_mbps(**link, 4);
  CAPTURE(one, four, window_mbps);
  CHECK(one <= 1.1 * window_mbps);
  CHECK(four <= 4.4 * window_mbps);
  CHECK(four >= 2 * one);
}
