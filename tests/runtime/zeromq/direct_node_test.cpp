#include <sys/resource.h>
#include <time.h>

#include <atomic>

#include "runtime/host/log.hpp"
#include "runtime/host/stopwatch.hpp"
#include "runtime/raw_peers.hpp"
#include "runtime/zeromq/engine.hpp"

// A node with tensors for another node of its datacenter; the test plays its gateway and its peer.

using namespace troupe;
using namespace troupe::runtime;
using namespace troupe::runtime::test;

namespace {

constexpr address of_gateway = 1, of_a0 = node_address(0), of_a1 = node_address(1);
constexpr double greeting_s = 0.04;

/// Node a-0, under a gateway that has welcomed it.
struct a_node {
  double greeting_s_;
  raw_listener gateway;
  mailbox at{open()};

  explicit a_node(double greeting = greeting_s) : greeting_s_{greeting} {
    CHECK(gateway.receive_a<hello>().endpoint == net().endpoint());
    gateway.answer(encode(of_gateway, of_a0, welcome{of_a0}));
    REQUIRE(net().wait_until_greeted(long_s));
    while (gateway.receive_within(0)) {
    }
  }
  std::shared_ptr<zeromq_transport> open() const {
    zeromq_options o;
    o.name = "a-0";
    o.cluster = two_datacenters();
    o.incarnation = 1;
    o.listen = "tcp://127.0.0.1:*";
    o.upstream = gateway.endpoint();
    o.greeting_s = greeting_s_;
    return must_open(o);
  }
  zeromq_transport& net() { return dynamic_cast<zeromq_transport&>(at.net()); }
  bool send_tensor(std::uint64_t iteration) {
    tensor t;
    t.from = {1, 0, 0};
    t.iteration = iteration;
    return net().send(of_a1, encode(of_a0, of_a1, t, payload{std::vector<std::byte>(2000)}),
                      tensor_lane);
  }
  /// The gateway's answer to the node's question.
  void tell(const std::string& endpoint) {
    REQUIRE(gateway.receive_a<find_node>().node == of_a1);
    gateway.answer(encode(of_gateway, of_a0, node_endpoint{of_a1, endpoint}));
  }
  /// The next tensor that comes to the gateway; the questions before it.
  std::pair<std::uint64_t, int> through_gateway() {
    for (int asked = 0;; ++asked) {
      const auto m = gateway.receive_within(long_s);
      REQUIRE(m);
      if (const auto* t = std::get_if<tensor>(&*m)) return {t->iteration, asked};
      REQUIRE(std::get<find_node>(*m).node == of_a1);
    }
  }
};

}  // namespace

TEST_CASE("a node's endpoint is announced with an address that its gateway can reach") {
  CHECK(reachable_endpoint("tcp://0.0.0.0:77", "10.1.2.3") == "tcp://10.1.2.3:77");
  CHECK(reachable_endpoint("tcp://[::]:77", "fe80::1") == "tcp://[fe80::1]:77");
  CHECK(reachable_endpoint("tcp://[::]:77", "10.1.2.3") == "tcp://10.1.2.3:77");
  CHECK(reachable_endpoint("tcp://0.0.0.0:77", "") == "tcp://0.0.0.0:77");
  CHECK(reachable_endpoint("tcp://10.9.9.9:77", "10.1.2.3") == "tcp://10.9.9.9:77");
  CHECK(reachable_endpoint("ipc://a", "10.1.2.3") == "ipc://a");
  CHECK(reachable_endpoint(std::string(256, 'x'), "") == std::string(256, 'x'));
  CHECK(reachable_endpoint(std::string(257, 'x'), "").empty());
}

TEST_CASE(
    "the first tensors wait while a node asks for its peer's endpoint, then go through the "
    "gateway") {
  std::atomic<int> said{0};
  set_log_sink([&](log_level, std::string_view line) {
    said += line.find("tensors go through the gateway") != std::string_view::npos;
  });
  a_node n;
  const stopwatch since;
  for (std::uint64_t i = 0; i < 3; ++i) CHECK(n.send_tensor(i));
  const auto [first, asked] = n.through_gateway();
  CHECK(since.s() > 2.5 * greeting_s);
  CHECK(first == 0);
  CHECK(asked >= 2);  // twice as often as it greets
  CHECK(asked <= 6);
  for (std::uint64_t i = 1; i < 3; ++i) CHECK(n.through_gateway() == std::pair{i, 0});
  // For a while nothing is asked, and nothing waits.
  CHECK(n.send_tensor(3));
  const auto [next, again] = n.through_gateway();
  CHECK(next == 3);
  if (since.s() < 5 * greeting_s) CHECK(again == 0);
  // Then it asks again, and what is sent meanwhile does not wait a second time.
  std::uint64_t i = 3;
  double paused = 0;
  for (const double pause : {2., 4.}) {
    REQUIRE(eventually([&] {
      CHECK(n.send_tensor(++i));
      return n.through_gateway().second > 0;
    }));
    CHECK(since.s() - paused > pause * greeting_s);
    CHECK(n.send_tensor(++i));
    CHECK(n.through_gateway().second < 3);
    paused = since.s();
    REQUIRE(eventually([&] { return !n.gateway.receive_within(1.5 * greeting_s); }));
  }
  set_log_sink({});
  CHECK(said == 1);  // a minute
  CHECK(n.net().counts().lost == 0);
}

TEST_CASE("tensors for a node without a usable endpoint go through the gateway at once") {
  const auto useless = GENERATE(as<std::string>{}, "", "ipc:///tmp/not-encrypted", "tcp://nonsense",
                                "tcp://" + std::string(300, '1'));
  CAPTURE(useless);
  a_node n{0.5};
  CHECK(n.send_tensor(5));
  n.tell(useless);
  CHECK(n.through_gateway() == std::pair{std::uint64_t{5}, 0});
}

TEST_CASE("after a failed attempt to connect directly, no tensor waits for the next attempt") {
  a_node n;
  raw_listener other;
  CHECK(n.send_tensor(0));
  n.tell("");
  CHECK(n.through_gateway() == std::pair{std::uint64_t{0}, 0});
  bool asked = false;
  const auto next_at_gateway = [&] {
    for (;;) {
      const auto m = n.gateway.receive_within(long_s);
      REQUIRE(m);
      if (const auto* t = std::get_if<tensor>(&*m)) return t->iteration;
      if (std::exchange(asked, true)) continue;
      // The next attempt succeeds at once.
      n.gateway.answer(encode(of_gateway, of_a0, node_endpoint{of_a1, other.endpoint()}));
      if (other.receive_within(1)) other.answer(encode(of_a1, of_a0, welcome{of_a0}));
    }
  };
  std::uint64_t i = 0;
  CHECK(eventually([&] {
    CHECK(n.send_tensor(++i));
    CHECK(next_at_gateway() == i);
    return asked;
  }));
}

TEST_CASE("tensors for a node that refuses or does not answer go through the gateway") {
  const bool refuses = GENERATE(true, false);
  a_node n{0.2};
  raw_listener other;
  CHECK(n.send_tensor(5));
  n.tell(other.endpoint());
  const auto h = other.receive_a<hello>();
  CHECK(h.name == "a-0");
  CHECK_FALSE(h.endpoint);
  if (refuses) other.answer(encode(of_a1, of_a0, refusal{{reason::kind::refused, "no"}}));
  CHECK(n.through_gateway().first == 5);
  other.answer(encode(of_a1, of_a0, welcome{of_a0}));  // too late
  CHECK(n.send_tensor(6));
  CHECK(n.through_gateway().first == 6);
  CHECK_FALSE(n.net().refused());
}

TEST_CASE("tensors go directly to a node that welcomes, and through the gateway once it is gone") {
  a_node n;
  auto other = std::make_unique<raw_listener>();
  const auto endpoint = other->endpoint();
  CHECK(n.send_tensor(0));
  n.tell(endpoint);
  other->receive_a<hello>();
  other->answer(encode(of_a1, of_a0, welcome{of_a0}));
  for (std::uint64_t i = 0; i < 3; ++i) {
    CHECK(other->receive_a<tensor>().iteration == i);
    CHECK(n.send_tensor(i + 1));
  }
  // Over it comes nothing for the node itself but tensors of that node.
  tensor t;
  t.from = {1, 0, 0};
  other->answer(numbered(of_a1, of_a0, 1));
  other->answer(encode(of_gateway, of_a0, t));
  other->answer(encode(of_a1, of_gateway, t));
  other->answer(encode(of_a1, of_a0, node_endpoint{of_a1, ""}));
  other->answer(encode(of_a1, of_a0, t));
  REQUIRE(n.at.has(1));
  CHECK(n.at.size() == 1);
  CHECK(other->receive_a<tensor>().iteration == 3);
  other.reset();
  std::uint64_t i = 10;
  REQUIRE(eventually([&] {
    n.send_tensor(++i);
    const auto m = n.gateway.receive_within(0.05);
    return m && std::holds_alternative<tensor>(*m);
  }));
  // It is back, and that the first attempt has failed is forgotten.
  raw_listener again{endpoint};
  REQUIRE(eventually([&] {
    n.send_tensor(++i);
    const auto m = n.gateway.receive_within(0.02);
    if (m && std::holds_alternative<find_node>(*m))
      n.gateway.answer(encode(of_gateway, of_a0, node_endpoint{of_a1, endpoint}));
    const auto h = again.receive_within(0.02);
    if (h && std::holds_alternative<hello>(*h)) again.answer(encode(of_a1, of_a0, welcome{of_a0}));
    return h && std::holds_alternative<tensor>(*h);
  }));
}

TEST_CASE("an idle host sleeps") {
  a_node n;
  raw_listener other;
  n.send_tensor(0);
  n.tell(other.endpoint());
  other.receive_a<hello>();
  other.answer(encode(of_a1, of_a0, welcome{of_a0}));
  other.receive_a<tensor>();
  const auto switches = [] {
    rusage u{};
    ::getrusage(RUSAGE_SELF, &u);
    return std::pair{u.ru_nvcsw,
                     static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
                         1e-6 * static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec)};
  };
  const auto before = switches();
  CHECK_FALSE(n.gateway.receive_within(0.4));
  const auto after = switches();
  CHECK(after.first - before.first < 100);    // times that a thread of this process went to sleep
  CHECK(after.second - before.second < 0.1);  // seconds of a processor
}
