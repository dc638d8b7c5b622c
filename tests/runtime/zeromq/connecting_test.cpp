#include <atomic>

#include "runtime/host/log.hpp"
#include "runtime/host/stopwatch.hpp"
#include "runtime/raw_peers.hpp"

// A gateway that connects to a controller that the test plays.

using namespace troupe;
using namespace troupe::runtime;
using namespace troupe::runtime::test;

namespace {

constexpr address dc1_gateway = 1, dc2_gateway = 2;

zeromq_options gateway_of(const raw_listener& controller, double greeting_s = 0.02) {
  zeromq_options o;
  o.name = "dc1/gateway";
  o.cluster = two_datacenters();
  o.incarnation = 7;
  o.upstream = controller.endpoint();
  o.greeting_s = greeting_s;
  return o;
}

frame welcoming(address whom = dc1_gateway) {
  return encode(controller_address, whom, welcome{whom});
}
frame refusing(reason::kind why, const std::string& text = "no") {
  return encode(controller_address, dc1_gateway, refusal{{why, text}});
}
frame from_controller(std::uint64_t n, payload body = {}) {
  return numbered(controller_address, dc1_gateway, n, std::move(body));
}

}  // namespace

TEST_CASE("a host repeats its greeting at its interval until it is welcomed") {
  raw_listener controller;
  const auto net = must_open(gateway_of(controller));
  mailbox at_gateway{net};
  const auto first = controller.receive_a<hello>();
  CHECK(first.name == "dc1/gateway");
  CHECK(first.incarnation == 7);
  CHECK_FALSE(first.endpoint);
  const stopwatch since;
  for (int i = 0; i < 5; ++i) controller.receive_a<hello>();
  CHECK(since.s() > 3 * 0.02);
  CHECK_FALSE(net->greeted());
  controller.answer(welcoming());
  REQUIRE(eventually([&] { return net->greeted(); }));
  while (controller.receive_within(0)) {
  }
  CHECK_FALSE(controller.receive_within(0.1));
}

TEST_CASE("a connecting host counts malformed messages and receives the frame that follows") {
  raw_listener controller;
  const auto net = must_open(gateway_of(controller));
  mailbox at_gateway{net};
  controller.receive_a<hello>();
  controller.answer(from_controller(1));  // before the welcome
  REQUIRE(eventually([&] { return net->counts().strangers == 1; }));
  controller.answer(welcoming());
  constexpr std::uint64_t rounds = 20;
  for (std::uint64_t n = 0; n < rounds; ++n) {
    controller.answer({"one part"});
    controller.answer({raw_listener::text(from_controller(7).header)});
    controller.answer(from_controller(10 * n));
    controller.answer({"a", "b", "c", "d"});
    controller.answer(from_controller(10 * n + 1));
    controller.answer({"no header", ""});
    controller.answer(
        raw_listener::parts_of_batch({from_controller(10 * n + 2), from_controller(10 * n + 3)}));
    controller.answer({"\xc1", "?"});
    controller.answer(from_controller(10 * n + 4));
  }
  REQUIRE(at_gateway.has(5 * rounds));
  for (std::uint64_t i = 0; i < 5 * rounds; ++i)
    REQUIRE(number_of(at_gateway.at(i)) == i / 5 * 10 + i % 5);
  CHECK(net->counts().malformed == 5 * rounds);
  CHECK(net->counts().strangers == 1);
  CHECK(net->counts().received == 5 * rounds);
  CHECK(net->greeted());
}

TEST_CASE("a malformed answer to a greeting counts as a refusal, and the host keeps greeting") {
  raw_listener controller;
  const auto net = must_open(gateway_of(controller));
  mailbox at_gateway{net};
  controller.receive_a<hello>();
  controller.answer(raw_listener::parts_of_batch({from_controller(1)}));
  REQUIRE(eventually([&] { return net->refused().has_value(); }));
  CHECK(net->refused()->code == reason::kind::malformed);
  CHECK(net->counts().malformed == 1);
  controller.receive_a<hello>();
  controller.answer(welcoming());
  REQUIRE(eventually([&] { return net->greeted(); }));
  CHECK_FALSE(net->refused());
}

TEST_CASE("a refused host greets again after pauses that double, and works once it is welcomed") {
  constexpr double greeting_s = 0.03;
  raw_listener controller;
  std::atomic<int> said{0};
  set_log_sink([&](log_level, std::string_view line) {
    said += line.find("not on the list") != std::string_view::npos;
  });
  const auto net = must_open(gateway_of(controller, greeting_s));
  mailbox at_gateway{net};
  controller.receive_a<hello>();
  while (controller.receive_within(0)) {
  }  // greetings in flight
  for (const double pause : {2., 4., 8.}) {
    controller.answer(refusing(reason::kind::refused, "not on the list"));
    const stopwatch since;
    controller.receive_a<hello>();
    CHECK(since.s() > pause * greeting_s);
    CHECK(net->refused()->text == "not on the list");
  }
  set_log_sink({});
  CHECK(said == 1);
  CHECK_FALSE(net->greeted());
  CHECK(net->wait_until_greeted(long_s).error().text == "not on the list");
  controller.answer(welcoming());
  REQUIRE(eventually([&] { return net->greeted(); }));
}

TEST_CASE("a superseded host stops greeting") {
  raw_listener controller;
  const auto net = must_open(gateway_of(controller));
  mailbox at_gateway{net};
  controller.receive_a<hello>();
  controller.answer(refusing(reason::kind::stale));
  REQUIRE(eventually([&] { return net->refused().has_value(); }));
  while (controller.receive_within(0)) {
  }
  CHECK_FALSE(controller.receive_within(0.2));
}

TEST_CASE("a refused client learns the reason and does not retry") {
  raw_listener controller;
  auto o = gateway_of(controller);
  o.name = "somebody";
  o.client = true;
  const auto net = must_open(o);
  mailbox at_client{net};
  CHECK_FALSE(controller.receive_a<hello>().entry);
  controller.answer(refusing(reason::kind::refused, "no clients today"));
  CHECK(net->wait_until_greeted(long_s).error().text == "no clients today");
  while (controller.receive_within(0)) {
  }
  CHECK_FALSE(controller.receive_within(0.2));
}

TEST_CASE(
    "a host whose peer has forgotten it greets again at once, and once for several refusals") {
  raw_listener controller;
  const auto net = must_open(gateway_of(controller, 60));
  mailbox at_gateway{net};
  controller.receive_a<hello>();
  controller.answer(welcoming());
  REQUIRE(eventually([&] { return net->greeted(); }));
  for (int i = 0; i < 3; ++i) controller.answer(refusing(reason::kind::unknown));
  controller.receive_a<hello>();
  CHECK_FALSE(controller.receive_within(0.05));
  CHECK_FALSE(net->greeted());
  CHECK_FALSE(net->refused());
  controller.answer(welcoming());
  CHECK(eventually([&] { return net->greeted(); }));
}

TEST_CASE(
    "a gateway refused by another gateway keeps its connection to the controller and greets "
    "again") {
  raw_listener controller, other;
  auto o = gateway_of(controller);
  o.name = "dc2/gateway";
  o.links = {{dc1_gateway, other.endpoint(), 1}};
  const auto net = must_open(o);
  mailbox at_gateway{net};
  controller.receive_a<hello>();
  controller.answer(welcoming(dc2_gateway));
  other.receive_a<hello>();
  other.answer(encode(dc1_gateway, dc2_gateway, refusal{{reason::kind::refused, "not you"}}));
  other.receive_a<hello>();
  CHECK(net->greeted());
  CHECK_FALSE(net->refused());
  // Once the other gateway welcomes it, its frames are delivered.
  other.answer(encode(dc1_gateway, dc2_gateway, welcome{dc2_gateway}));
  other.answer(numbered(dc1_gateway, dc2_gateway, 3));
  REQUIRE(at_gateway.has(1));
}

TEST_CASE("sending is bounded by the credit window and the send queue, also after a new greeting") {
  raw_listener controller;
  auto o = gateway_of(controller);
  o.window_frames = 8;
  o.queue_frames = 12;
  const auto net = must_open(o);
  mailbox at_gateway{net};
  std::uint64_t sent = 0;
  const auto fill = [&] {
    while (net->send(controller_address, numbered(dc1_gateway, 0, sent))) ++sent;
  };
  controller.receive_a<hello>();
  fill();
  CHECK(sent == 8);  // before the welcome: one window
  CHECK(net->counts().full == 1);
  controller.answer(welcoming());
  const auto leave = [&](std::uint64_t frames) {
    REQUIRE(eventually([&] { return net->counts().sent == frames; }));
  };
  leave(8);
  const auto accepts = [&](std::uint64_t frames) {
    REQUIRE(eventually([&] {  // the thread may still account for what has left
      fill();
      return sent == frames;
    }));
  };
  accepts(8 + 12);
  controller.answer(encode(controller_address, dc1_gateway, credit{5}));
  leave(13);
  accepts(25);
  fill();
  CHECK(sent == 25);
  controller.answer(encode(controller_address, dc1_gateway, credit{100}));
  leave(13 + 8);
  // A new greeting opens an empty window, and queued frames are sent.
  controller.answer(refusing(reason::kind::unknown));
  REQUIRE(eventually([&] { return !net->greeted(); }));
  controller.answer(welcoming());
  leave(25);
}

TEST_CASE("a frame with a forged sender is dropped, and its credit is returned by bytes") {
  raw_listener controller;
  auto o = gateway_of(controller);
  const auto forged = numbered(first_client_address, dc1_gateway, 1,
                               payload{std::vector<std::byte>(3)});  // its sender is a client
  o.window_frames = 1000;
  const auto bad = numbered(node_address(0), dc1_gateway, 1, payload{std::vector<std::byte>(3)});
  o.window_bytes = 4 * bad.size();
  const auto net = must_open(o);
  mailbox at_gateway{net, false};
  controller.receive_a<hello>();
  controller.answer(welcoming());
  REQUIRE(eventually([&] { return net->greeted(); }));
  while (controller.receive_within(0)) {
  }
  for (int i = 0; i < 3; ++i) {
    controller.answer(bad);
    CHECK(controller.receive_a<credit>().frames == 1);
  }
  CHECK(net->counts().strangers == 3);
  controller.answer(forged);  // clients' frames do come from the controller
  CHECK(at_gateway.has(1));
}

TEST_CASE(
    "message parts above 64 MiB are accepted from hosts that send tensors, not from the "
    "controller") {
  const payload large{std::vector<std::byte>((64 << 20) + 1)};
  raw_listener controller, other;
  auto o = gateway_of(controller);
  o.name = "dc2/gateway";
  o.links = {{dc1_gateway, other.endpoint(), 1}};
  const auto net = must_open(o);
  mailbox at_gateway{net};
  other.receive_a<hello>();
  other.answer(encode(dc1_gateway, dc2_gateway, welcome{dc2_gateway}));
  other.answer(numbered(dc1_gateway, dc2_gateway, 3, large));
  CHECK(at_gateway.has(1));
  controller.receive_a<hello>();
  controller.answer(welcoming(dc2_gateway));
  REQUIRE(eventually([&] { return net->greeted(); }));
  while (controller.receive_within(0.05)) {
  }
  controller.answer(numbered(0, dc2_gateway, 4, large));
  controller.receive_a<hello>();  // it had to connect again
  CHECK(at_gateway.size() == 1);
}

TEST_CASE("a host without an upstream waits for no greeting") {
  zeromq_options o;
  o.name = "controller";
  o.cluster = two_datacenters();
  o.listen = "tcp://127.0.0.1:*";
  const auto net = must_open(o);
  const mailbox at{net};
  CHECK(net->greeted());
  CHECK(net->wait_until_greeted(0));
}
