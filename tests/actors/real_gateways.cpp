#include <algorithm>

#include <caf/all.hpp>

#include "actors/wiring.hpp"
#include "runtime/real_clock.hpp"
#include "runtime/stopwatch.hpp"
#include "runtime_real/world.hpp"

// Two gateways' actors over ZeroMQ on loopback; the nodes and the controller are the test itself.

using namespace troupe;
using namespace troupe::runtime;
using namespace troupe::runtime::test;

namespace {

constexpr address dc1 = 1, dc2 = 2, a0 = 3, b0 = 5;

/// Where every byte is its place's, so that what is exchanged or missing shows.
payload pattern(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 0x9e3779b9U >> 15);
  return payload{std::move(bytes)};
}

struct loopback {
  explicit loopback(const wan_link& w, std::uint32_t lanes = 8) : c{two_datacenters()} {
    c.wan = {w};
    const auto controller = open(controller_address, "", {});
    boxes.push_back(std::make_unique<mailbox>(controller));
    const auto first = gate(dc1, controller->endpoint(), {});
    gate(dc2, controller->endpoint(), {{dc1, first->endpoint(), 1 + lanes}});
    node_a = std::make_unique<mailbox>(open(a0, gates[0]->endpoint(), {}));
    node_b = std::make_unique<mailbox>(open(b0, gates[1]->endpoint(), {}));
    for (auto* n : {node_a.get(), node_b.get()})
      REQUIRE(eventually([n] { return as_zeromq(*n).greeted(); }));
  }
  ~loopback() {
    for (auto& a : actors) caf::anon_send_exit(a, caf::exit_reason::kill);
    node_a.reset();
    node_b.reset();
  }

  static zeromq_transport& as_zeromq(mailbox& m) {
    return dynamic_cast<zeromq_transport&>(m.net());
  }

  std::shared_ptr<zeromq_transport> open(address a, const std::string& upstream,
                                         std::vector<zeromq_link> links) {
    zeromq_options o;
    o.name = host_name(c, a);
    o.cluster = c;
    o.incarnation = 1;
    if (!is_node(c, a)) o.listen = "tcp://127.0.0.1:*";
    o.upstream = upstream;
    o.links = std::move(links);
    if (is_node(c, a)) o.connections = 2;
    return must_open(o);
  }

  std::shared_ptr<zeromq_transport> gate(address a, const std::string& upstream,
                                         std::vector<zeromq_link> links) {
    auto net = open(a, upstream, std::move(links));
    host h;
    h.self = a;
    h.incarnation = 1;
    h.clock = std::make_shared<real_clock>();
    h.net = net;
    const auto started =
        actors::start_gateway(system, h, std::make_shared<const cluster>(c), false);
    actors.insert(actors.end(), started.begin(), started.end());
    gates.push_back(net);
    return net;
  }

  static tensor head(std::uint32_t flow, std::uint32_t number, std::size_t size, wan_share share) {
    tensor t;
    t.from = {1, flow, 0};
    t.to_pipeline = flow, t.to_stage = 1;
    t.microbatch = number;
    t.bytes = size;
    t.share = share;
    return t;
  }

  void send(const tensor& t) {
    const auto f = encode(a0, b0, t, pattern(t.bytes));
    REQUIRE(eventually([&] { return node_a->net().send(b0, f, tensor_lane); }));
  }

  /// What has come to b0, each body checked.
  std::vector<tensor> arrived(std::size_t n) {
    REQUIRE(node_b->has(n));
    std::vector<tensor> all;
    for (const auto& f : node_b->take()) {
      const auto m = decode(f.header.bytes());
      REQUIRE(m);
      all.push_back(std::get<tensor>(m->second));
      REQUIRE(f.body.bytes().size() == all.back().bytes);
      REQUIRE(std::ranges::equal(f.body.bytes(), pattern(all.back().bytes).bytes()));
    }
    return all;
  }

  cluster c;
  caf::actor_system_config config;
  caf::actor_system system{config};
  std::vector<std::shared_ptr<zeromq_transport>> gates;
  std::vector<caf::actor> actors;
  std::vector<std::unique_ptr<mailbox>> boxes;
  std::unique_ptr<mailbox> node_a, node_b;
};

}  // namespace

TEST_CASE("From 1 byte to 64 MB a tensor is the same after its way over real connections") {
  loopback w{{0, 1, 40, 5, 0.5}};
  const std::vector<std::size_t> sizes{1,         2,         1000,       4097,
                                       1'000'000, 8'388'608, 33'333'333, 64'000'000};
  std::uint32_t number = 0;
  for (const auto size : sizes) w.send(loopback::head(0, number++, size, {0, 2, 4}));
  const auto all = w.arrived(sizes.size());
  REQUIRE(all.size() == sizes.size());
  for (std::uint32_t i = 0; i < all.size(); ++i) CHECK(all[i].microbatch == i);
  CHECK(all[3].share == wan_share{0, 2, 4});
}

TEST_CASE("Hundreds of tensors of several flows are all there, each flow in order") {
  loopback w{{0, 1, 40, 5, 0.5}};
  random_source random{5};
  constexpr std::uint32_t tensors = 600, flows = 4;
  for (std::uint32_t i = 0; i < tensors; ++i)
    w.send(loopback::head(i % flows, i, random.below(200'000),
                          {i % flows, 1, 1 + i % flows * 3, i % flows == 3, i}));
  std::map<std::uint32_t, std::uint32_t> last;
  const auto all = w.arrived(tensors);
  REQUIRE(all.size() == tensors);
  for (const auto& t : all) {
    CHECK((!last.contains(t.to_pipeline) || last[t.to_pipeline] < t.microbatch));
    last[t.to_pipeline] = t.microbatch;
  }
}

TEST_CASE("An emulated link is no faster than it says: rate, connections and delay") {
  wan_link slow{0, 1, 100, 0.4, 0.1};
  slow.emulate = true;
  loopback w{slow};
  constexpr std::size_t size = 500'000;  // 40 ms at 0.1 Gbit/s
  const auto takes = [&](std::uint32_t flow, std::uint32_t connections) {
    const stopwatch watch;
    for (std::uint32_t i = 0; i < 3; ++i)
      w.send(loopback::head(flow, i, size, {0, 1, connections}));
    w.arrived(3);
    return watch.s();
  };
  CHECK(takes(0, 1) >= 3 * 0.040 + 0.050);
  CHECK(takes(1, 2) >= 3 * 0.020 + 0.050);
  CHECK(takes(2, 8) >= 3 * 0.010 + 0.050);  // the pair's cap
}

TEST_CASE("Emulated and in turn: the transfers of a cell cross one at a time") {
  wan_link slow{0, 1, 0, 0.1, 0};
  slow.emulate = true;
  loopback w{slow};
  const stopwatch watch;
  // Four pipelines, each over the shares of all: 10 ms each, one after the other.
  for (std::uint32_t p = 0; p < 4; ++p)
    w.send(loopback::head(p, 0, 500'000, {0, 4, 1, true, 4 - p}));
  const auto all = w.arrived(4);
  CHECK(watch.s() >= 4 * 0.010);
  CHECK(all.size() == 4);
}
