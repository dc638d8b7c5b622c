#include "runtime/zeromq/transport.hpp"

#include <atomic>
#include <optional>

#include "runtime/host/log.hpp"
#include "runtime/world.hpp"

using namespace troupe;
using namespace troupe::runtime;
using namespace troupe::runtime::test;

namespace {

zeromq_options controller_options() {
  zeromq_options o;
  o.name = "controller";
  o.cluster = two_datacenters();
  o.incarnation = 1;
  o.listen = "tcp://127.0.0.1:*";
  return o;
}

zeromq_options host_options(const std::string& name, const std::string& upstream) {
  auto o = controller_options();
  o.name = name;
  if (name != "dc1/gateway") o.listen.clear();
  o.upstream = upstream;
  return o;
}

constexpr address dc1 = 1, a0 = node_address(0);

std::vector<std::byte> megabytes(std::size_t n) {
  return std::vector<std::byte>(n << 20, std::byte{7});
}

}  // namespace

TEST_CASE("a node's frame reaches the controller through its gateway, and the answer comes back") {
  auto controller = must_open(controller_options());
  auto gateway_o = host_options("dc1/gateway", controller->endpoint());
  gateway_o.listen = "tcp://127.0.0.1:*";
  auto gateway = must_open(gateway_o);
  auto node = must_open(host_options("a-0", gateway->endpoint()));
  REQUIRE(node->self() == a0);
  mailbox at_controller{controller}, at_gateway{gateway}, at_node{node};
  REQUIRE(node->wait_until_greeted(long_s));
  REQUIRE(gateway->wait_until_greeted(long_s));

  REQUIRE(node->send(controller_address, numbered(a0, controller_address, 7)));
  REQUIRE(at_gateway.has(1));
  REQUIRE(gateway->send(controller_address, at_gateway.at(0)));
  REQUIRE(at_controller.has(1));
  REQUIRE(number_of(at_controller.at(0)) == 7);
  REQUIRE(peek(at_controller.at(0).header.bytes())->from == a0);

  REQUIRE(controller->send(a0, numbered(controller_address, a0, 8)));
  REQUIRE(at_gateway.has(2));
  REQUIRE(gateway->send(a0, at_gateway.at(1)));
  REQUIRE(at_node.has(1));
  REQUIRE(number_of(at_node.at(0)) == 8);
}

TEST_CASE("a client learns its address from the welcome, and two clients get different addresses") {
  auto controller = must_open(controller_options());
  mailbox at_controller{controller};
  std::vector<std::shared_ptr<zeromq_transport>> clients;
  for (std::uint64_t n = 1; n <= 2; ++n) {
    zeromq_options o;
    o.name = "somebody";
    o.client = true;
    o.incarnation = n;
    o.upstream = controller->endpoint();
    clients.push_back(must_open(o));
    REQUIRE_FALSE(clients.back()->send(controller_address, numbered(0, 0, 1)));
    clients.back()->listen([](const frame&) {});
    REQUIRE(clients.back()->wait_until_greeted(long_s));
    REQUIRE(clients.back()->self() == first_client_address + n);
    REQUIRE(clients.back()->send(controller_address, numbered(clients.back()->self(), 0, n)));
    REQUIRE(at_controller.has(n));
  }
}

TEST_CASE("a host is refused if it is unknown, of another cluster or connects to the wrong host") {
  auto controller = must_open(controller_options());
  mailbox at_controller{controller};
  auto other = host_options("dc1/gateway", controller->endpoint());
  auto renamed = two_datacenters();
  renamed.name = "other";
  other.cluster = renamed;
  auto wrong_place = host_options("a-0", controller->endpoint());
  auto unknown = host_options("dc3/gateway", controller->endpoint());
  auto larger = two_datacenters();
  larger.datacenters.push_back({"dc3", ""});
  unknown.cluster = larger;
  for (const auto& o : {other, wrong_place, unknown}) {
    auto t = must_open(o);
    t->listen([](const frame&) {});
    const auto greeted = t->wait_until_greeted(long_s);
    REQUIRE_FALSE(greeted);
    REQUIRE(t->refused());
    REQUIRE(t->refused()->code == reason::kind::refused);
    REQUIRE(greeted.error() == *t->refused());
  }
  REQUIRE_FALSE(zeromq_transport::open(host_options("nobody", controller->endpoint())));
}

TEST_CASE("a host's file needs its own entry alone; a difference in that is named") {
  auto controller = must_open(controller_options());
  mailbox at_controller{controller};
  auto gateway = must_open(host_options("dc1/gateway", controller->endpoint()));
  mailbox at_gateway{gateway};
  REQUIRE(gateway->wait_until_greeted(long_s));
  // The node's file has its own datacenter alone, and the node at another place.
  auto small = two_datacenters();
  small.nodes = {small.nodes[1]};
  small.datacenters.resize(1);
  small.wan.clear();
  auto o = host_options("a-1", gateway->endpoint());
  o.cluster = small;
  auto node = must_open(o);
  CHECK(node->self() == a0);
  mailbox at_node{node};
  REQUIRE(node->wait_until_greeted(long_s));
  CHECK(node->self() == node_address(1));
  CHECK(o.cluster->nodes.size() == 3);
  small.nodes[0].gpus += 1;
  o.cluster = small;
  o.incarnation = 9;
  auto different = must_open(o);
  mailbox at_different{different};
  const auto no = different->wait_until_greeted(long_s);
  REQUIRE_FALSE(no);
  CHECK(no.error().text.find("a-1 has") != std::string::npos);
}

TEST_CASE("a node that was removed from the cluster is refused with that sentence") {
  auto controller = must_open(controller_options());
  mailbox at_controller{controller};
  auto removed = two_datacenters();
  removed.version = 2;
  removed.nodes[1].removed = true;
  removed.nodes[1].gpus = 0;
  auto o = host_options("dc1/gateway", controller->endpoint());
  auto gateway = must_open(o);
  mailbox at_gateway{gateway};
  REQUIRE(gateway->wait_until_greeted(long_s));
  o.cluster.adopt(removed);
  auto node = must_open(host_options("a-1", gateway->endpoint()));
  mailbox at_node{node};
  const auto no = node->wait_until_greeted(long_s);
  REQUIRE_FALSE(no);
  CHECK(no.error().text == "a-1 was removed from the cluster");
}

TEST_CASE("a node that greets its gateway before that knows the cluster is welcomed afterwards") {
  scratch dir;
  auto of_controller = controller_options();
  of_controller.listen = "ipc://" + dir / "controller";
  auto gateway = must_open(host_options("dc1/gateway", of_controller.listen));
  mailbox at_gateway{gateway};
  auto node = must_open(host_options("a-0", gateway->endpoint()));
  mailbox at_node{node};
  CHECK_FALSE(node->wait_until_greeted(0.3));
  auto controller = must_open(of_controller);
  mailbox at_controller{controller};
  CHECK(node->wait_until_greeted(long_s));
}

TEST_CASE("a gateway greets a restarted controller again by itself") {
  scratch dir;
  auto o = controller_options();
  o.listen = "ipc://" + dir / "controller";
  auto gateway = must_open(host_options("dc1/gateway", o.listen));
  mailbox at_gateway{gateway};
  for (std::uint64_t incarnation = 1; incarnation <= 3; ++incarnation) {
    o.incarnation = incarnation;
    auto controller = must_open(o);
    mailbox at_controller{controller};
    REQUIRE(eventually([&] { return controller->send(dc1, numbered(0, dc1, incarnation)); }));
    REQUIRE(at_gateway.has(1));
    REQUIRE(number_of(at_gateway.take()[0]) == incarnation);
    REQUIRE(eventually([&] { return gateway->greeted(); }));
    REQUIRE(gateway->send(controller_address, numbered(dc1, 0, incarnation)));
    REQUIRE(at_controller.has(1));
  }
}

TEST_CASE("a newer incarnation takes over the route, and the older one is refused as stale") {
  auto controller = must_open(controller_options());
  mailbox at_controller{controller};
  auto o = host_options("dc1/gateway", controller->endpoint());
  auto first = must_open(o);
  mailbox at_first{first};
  REQUIRE(first->wait_until_greeted(long_s));
  o.incarnation = 2;
  auto second = must_open(o);
  mailbox at_second{second};
  REQUIRE(second->wait_until_greeted(long_s));
  REQUIRE(controller->send(dc1, numbered(0, dc1, 5)));
  REQUIRE(at_second.has(1));
  REQUIRE(at_first.size() == 0);
  first->send(controller_address, numbered(dc1, 0, 6));
  REQUIRE(eventually([&] { return first->refused().has_value(); }));
  REQUIRE(first->refused()->code == reason::kind::stale);
  REQUIRE(at_controller.size() == 0);
}

TEST_CASE("frames for an address without a route are dropped and counted") {
  auto controller = must_open(controller_options());
  mailbox at_controller{controller};
  REQUIRE_FALSE(controller->send(a0, numbered(0, a0, 1)));
  REQUIRE_FALSE(
      controller->send(first_client_address + 9, numbered(0, first_client_address + 9, 1)));
  REQUIRE_FALSE(controller->send(controller_address, numbered(0, 0, 1)));
  REQUIRE(controller->counts().no_route == 3);
}

TEST_CASE("a frame with a forged sender is dropped and counted") {
  auto controller = must_open(controller_options());
  mailbox at_controller{controller};
  auto gateway = must_open(host_options("dc1/gateway", controller->endpoint()));
  mailbox at_gateway{gateway};
  REQUIRE(gateway->wait_until_greeted(long_s));
  REQUIRE(gateway->send(0, numbered(dc1 + 1, 0, 1)));
  REQUIRE(gateway->send(0, numbered(dc1, 0, 2)));
  REQUIRE(at_controller.has(1));
  REQUIRE(number_of(at_controller.at(0)) == 2);
  REQUIRE(controller->counts().strangers == 1);
}

TEST_CASE(
    "a slow receiver applies back-pressure: the send queue is bounded, accepted frames stay in "
    "order") {
  auto controller = must_open(controller_options());
  mailbox at_controller{controller, false};
  auto o = host_options("dc1/gateway", controller->endpoint());
  o.window_frames = 64;
  o.queue_frames = 1000;
  auto gateway = must_open(o);
  mailbox at_gateway{gateway};
  REQUIRE(gateway->wait_until_greeted(long_s));
  std::uint64_t accepted = 0;
  REQUIRE(eventually([&] {  // the thread may still move frames from the queue to the network
    while (gateway->send(0, numbered(dc1, 0, accepted))) ++accepted;
    return accepted == 1064;
  }));
  REQUIRE(at_controller.has(64));
  REQUIRE_FALSE(gateway->send(0, numbered(dc1, 0, 0)));
  REQUIRE(at_controller.size() == 64);
  std::uint64_t next = 0;
  REQUIRE(controller->counts().received == 64);
  for (const auto& f : at_controller.take()) REQUIRE(number_of(f) == next++);
}

TEST_CASE("every accepted frame has arrived in order once a slow receiver has caught up") {
  auto small = controller_options();
  small.window_frames = 64;
  auto controller = must_open(small);
  mailbox at_controller{controller, false};
  auto o = host_options("dc1/gateway", controller->endpoint());
  o.window_frames = 64;
  o.queue_frames = 1000;
  auto gateway = must_open(o);
  mailbox at_gateway{gateway};
  REQUIRE(gateway->wait_until_greeted(long_s));
  std::uint64_t accepted = 0, seen = 0;
  while (accepted < 20000) {
    while (accepted < 20000 && gateway->send(0, numbered(dc1, 0, accepted))) ++accepted;
    const auto some = at_controller.take();
    REQUIRE(some.size() <= 2 * 64);
    for (const auto& f : some) {
      REQUIRE(number_of(f) == seen++);
      controller->handled(f);
    }
  }
  REQUIRE(eventually([&] {
    for (const auto& f : at_controller.take()) {
      REQUIRE(number_of(f) == seen++);
      controller->handled(f);
    }
    return seen == accepted;
  }));
  REQUIRE(gateway->counts().full > 0);
}

TEST_CASE(
    "the credit window is bounded by bytes too: large frames close it before the frame limit "
    "does") {
  auto o = controller_options();
  o.window_bytes = 8u << 20;
  auto controller = must_open(o);
  mailbox at_controller{controller, false};
  auto g = host_options("dc1/gateway", controller->endpoint());
  g.window_bytes = 8u << 20;
  g.queue_bytes = 16u << 20;
  auto gateway = must_open(g);
  mailbox at_gateway{gateway};
  REQUIRE(gateway->wait_until_greeted(long_s));
  const payload body{megabytes(1)};
  std::uint64_t accepted = 0, seen = 0;
  REQUIRE(eventually([&] {
    while (gateway->send(0, numbered(dc1, 0, accepted, body))) ++accepted;
    return accepted >= 22 && at_controller.size() == 8;
  }));
  REQUIRE(accepted <= 26);
  REQUIRE(eventually([&] {
    for (const auto& f : at_controller.take()) {
      REQUIRE(number_of(f) == seen++);
      REQUIRE(f.body.bytes().size() == 1u << 20);
      controller->handled(f);
    }
    return seen == accepted;
  }));
}

TEST_CASE("several connections carry all frames, and those of one lane stay in order") {
  auto controller = must_open(controller_options());
  mailbox at_controller{controller};
  auto o = host_options("dc1/gateway", controller->endpoint());
  o.connections = 4;
  auto gateway = must_open(o);
  mailbox at_gateway{gateway};
  REQUIRE(gateway->wait_until_greeted(long_s));
  constexpr std::uint64_t frames = 3000;
  constexpr std::uint32_t lanes = 7;  // more than there are connections
  for (std::uint64_t n = 0; n < frames; ++n) {
    const auto lane = static_cast<std::uint32_t>(n * n % lanes);
    REQUIRE(eventually([&] { return gateway->send(0, numbered(dc1, 0, n), lane); }));
    REQUIRE(eventually([&] { return controller->send(dc1, numbered(0, dc1, n)); }));
  }
  REQUIRE(at_controller.has(frames));
  REQUIRE(at_gateway.has(frames));
  std::map<std::uint64_t, std::uint64_t> last;
  for (const auto& f : at_controller.take()) {
    const auto n = number_of(f), lane = n * n % lanes;
    REQUIRE((!last.contains(lane) || last[lane] < n));
    last[lane] = n;
  }
  std::uint64_t expected_number = 0;
  for (const auto& f : at_gateway.take()) REQUIRE(number_of(f) == expected_number++);
}

TEST_CASE("a body is sent and received without a copy") {
  auto controller = must_open(controller_options());
  mailbox at_controller{controller};
  auto gateway = must_open(host_options("dc1/gateway", controller->endpoint()));
  mailbox at_gateway{gateway};
  REQUIRE(gateway->wait_until_greeted(long_s));
  const auto bytes = std::make_shared<const std::vector<std::byte>>(megabytes(3));
  const std::weak_ptr<const std::vector<std::byte>> watched = bytes;
  REQUIRE(gateway->send(0, numbered(dc1, 0, 1, payload{bytes, *bytes})));
  REQUIRE(at_controller.has(1));
  const auto arrived = at_controller.take();
  REQUIRE(std::ranges::equal(arrived[0].body.bytes(), *bytes));
  REQUIRE(arrived[0].body.owner() == arrived[0].header.owner());
  REQUIRE(eventually([&] { return watched.use_count() == 1; }));  // ZeroMQ has let go
}

TEST_CASE("a host greets as soon as its connection is up; the timer only repeats lost greetings") {
  scratch dir;
  auto c = controller_options();
  c.listen = "ipc://" + dir / "controller";
  auto o = host_options("dc1/gateway", c.listen);
  o.listen = "ipc://" + dir / "gateway";
  o.greeting_s = 3600;
  auto gateway = must_open(o);
  mailbox at_gateway{gateway};
  for (c.incarnation = 1; c.incarnation <= 5; ++c.incarnation) {
    auto controller = must_open(c);
    mailbox at_controller{controller};
    REQUIRE(eventually([&] { return controller->send(dc1, numbered(0, dc1, c.incarnation)); }));
    REQUIRE(at_gateway.has(c.incarnation));
  }
}

TEST_CASE("a host has 1 to 64 connections to its upstream") {
  auto controller = must_open(controller_options());
  const auto opens = [&](std::uint32_t connections) {
    auto o = host_options("dc1/gateway", controller->endpoint());
    o.connections = connections;
    const auto made = zeromq_transport::open(o);
    return made ? std::optional<reason::kind>{} : made.error().code;
  };
  CHECK(opens(0) == reason::kind::invalid);
  CHECK_FALSE(opens(1));
  CHECK_FALSE(opens(64));
  CHECK(opens(65) == reason::kind::invalid);
}

TEST_CASE("a host that listens to other machines without keys logs a warning") {
  int warned = 0;
  set_log_sink([&](log_level, std::string_view line) {
    warned += line.find("listening without keys") != std::string_view::npos;
  });
  const auto warns = [&](const std::string& at) {
    warned = 0;
    auto o = controller_options();
    o.listen = at;
    REQUIRE(zeromq_transport::open(o));
    return warned > 0;
  };
  const scratch dir;
  CHECK_FALSE(warns("tcp://127.0.0.1:*"));
  CHECK_FALSE(warns("ipc://" + dir / "controller"));
  CHECK(warns("tcp://0.0.0.0:*"));
  set_log_sink({});
}
