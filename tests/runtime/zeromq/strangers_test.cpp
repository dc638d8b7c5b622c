#include <zmq.hpp>

#include "runtime/world.hpp"
#include "runtime/zeromq/lane.hpp"

// Another program that connects to the controller: honest, faulty or hostile.

using namespace troupe;
using namespace troupe::runtime;
using namespace troupe::runtime::test;

namespace {

class stranger {
 public:
  explicit stranger(const std::string& endpoint) {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::rcvtimeo, static_cast<int>(1000 * long_s));
    socket_.connect(endpoint);
  }
  void send(const std::vector<std::string>& parts) {
    for (std::size_t i = 0; i < parts.size(); ++i)
      socket_.send(zmq::buffer(parts[i]),
                   i + 1 < parts.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
  }
  void send(const frame& f) { send({text(f.header), text(f.body)}); }
  void send_batch(const std::vector<frame>& frames) {
    auto b = make_batch({frames.begin(), frames.end()}, frames.size());
    send({b.header.to_string(), b.body.to_string()});
  }
  message receive() {
    zmq::message_t header, body;
    REQUIRE(socket_.recv(header));
    REQUIRE(header.more());
    REQUIRE(socket_.recv(body));
    REQUIRE_FALSE(body.more());
    const auto m = decode({static_cast<const std::byte*>(header.data()), header.size()});
    REQUIRE(m);
    return m->second;
  }
  address greet() {
    send(encode(first_client_address, 0, hello{"stranger", 1}));
    return std::get<welcome>(receive()).you;
  }

  static std::string text(const payload& p) {
    return {reinterpret_cast<const char*>(p.bytes().data()), p.bytes().size()};
  }

 private:
  zmq::context_t context_;
  zmq::socket_t socket_{context_, zmq::socket_type::dealer};
};

std::shared_ptr<zeromq_transport> a_controller(std::uint32_t window_frames = 1024) {
  zeromq_options o;
  o.name = "controller";
  o.cluster = two_datacenters();
  o.listen = "tcp://127.0.0.1:*";
  o.window_frames = window_frames;
  return must_open(o);
}

}  // namespace

TEST_CASE("a peer that has not greeted is asked to greet, whatever it sends") {
  auto controller = a_controller();
  mailbox at_controller{controller};
  stranger s{controller->endpoint()};
  s.send(numbered(first_client_address + 1, 0, 1));
  REQUIRE(std::get<refusal>(s.receive()).why.code == reason::kind::unknown);
  s.send_batch(
      {numbered(first_client_address + 1, 0, 1), numbered(first_client_address + 1, 0, 2)});
  REQUIRE(std::get<refusal>(s.receive()).why.code == reason::kind::unknown);
  s.send({"no header at all", ""});
  REQUIRE(std::get<refusal>(s.receive()).why.code == reason::kind::malformed);
  REQUIRE(s.greet() == first_client_address + 1);
  REQUIRE(at_controller.size() == 0);
}

TEST_CASE("malformed messages are counted, and the next valid frame is delivered") {
  auto controller = a_controller();
  mailbox at_controller{controller};
  stranger s{controller->endpoint()};
  const auto me = s.greet();
  s.send({"one part"});
  s.send({s.text(numbered(me, 0, 3).header)});
  s.send({"a", "b", "c", "d", "e"});
  const auto whole = numbered(me, 0, 3);
  s.send({s.text(whole.header), s.text(whole.body), "a third part"});
  s.send({"no header at all", ""});
  s.send({"\xc1", std::string("\xff\xff\xff\xff", 4)});      // a length beyond the end
  s.send({"\xc1", std::string("\x00\x00\x00", 3)});          // a truncated length
  s.send({"\xc1", std::string("\x01\x00\x00\x00\x93", 5)});  // not a frame
  s.send_batch(
      {encode(me, 0, hello{"stranger", 1}), encode(me, 0, node_endpoint{}), numbered(me, 0, 4)});
  s.send(numbered(me, 0, 5));
  REQUIRE(at_controller.has(2));
  REQUIRE(number_of(at_controller.at(0)) == 4);
  REQUIRE(number_of(at_controller.at(1)) == 5);
  REQUIRE(controller->counts().malformed == 10);
}

TEST_CASE("a client's request that does not decode is refused, and its connection goes on") {
  auto controller = a_controller();
  mailbox at_controller{controller};
  stranger s{controller->endpoint()};
  const auto me = s.greet();
  const auto refused = [&](const std::string& header) {
    s.send({header, ""});
    for (;;) {
      const auto m = s.receive();
      if (const auto* no = std::get_if<refusal>(&m)) return no->why;
      REQUIRE(std::holds_alternative<credit>(m));
    }
  };
  const auto good = s.text(numbered(me, 0, 4242).header);
  const auto longer = refused(good + '\x00');
  CHECK(longer.code == reason::kind::malformed);
  CHECK(longer.text.find("request 4242: ") == 0);
  CHECK(longer.text.find("bytes follow the end") != std::string::npos);
  CHECK(refused("no header at all").code == reason::kind::malformed);
  auto newer = good;
  newer[1] = 99;
  const auto other_version = refused(newer);
  CHECK(other_version.code == reason::kind::malformed);
  CHECK(other_version.text.find("version 99") != std::string::npos);
  s.send_batch({numbered(me, 0, 5)});
  REQUIRE(at_controller.has(1));
  CHECK(number_of(at_controller.at(0)) == 5);
  CHECK(controller->counts().malformed == 3);
}

TEST_CASE("a client's batch is unpacked, and a client is never sent a batch") {
  auto controller = a_controller();
  mailbox at_controller{controller};
  stranger s{controller->endpoint()};
  const auto me = s.greet();
  s.send_batch({numbered(me, 0, 1), numbered(me, 0, 2), numbered(me, 0, 3)});
  REQUIRE(at_controller.has(3));
  for (std::uint64_t n = 0; n < 3; ++n) REQUIRE(number_of(at_controller.at(n)) == n + 1);
  for (std::uint64_t n = 0; n < 100; ++n) REQUIRE(controller->send(me, numbered(0, me, n)));
  for (std::uint64_t n = 0; n < 100; ++n) REQUIRE(std::get<query_jobs>(s.receive()).request == n);
}

TEST_CASE("a peer that ignores its credit loses frames, and the mailbox stays bounded") {
  auto controller = a_controller(16);
  mailbox at_controller{controller, false};
  stranger s{controller->endpoint()};
  const auto me = s.greet();
  for (std::uint64_t n = 0; n < 1000; ++n) s.send(numbered(me, 0, n));
  REQUIRE(eventually([&] { return controller->counts().over_credit > 800; }));
  REQUIRE(at_controller.size() < 100);
}

TEST_CASE("credit inside a batch is malformed, and the rest of the batch is delivered") {
  auto controller = a_controller();
  mailbox at_controller{controller};
  stranger s{controller->endpoint()};
  const auto me = s.greet();
  s.send_batch({encode(me, 0, credit{1}), numbered(me, 0, 4)});
  REQUIRE(at_controller.has(1));
  CHECK(number_of(at_controller.at(0)) == 4);
  CHECK(controller->counts().malformed == 1);
}

TEST_CASE("a welcome or refusal from a peer that has not greeted is not answered") {
  auto controller = a_controller();
  mailbox at_controller{controller};
  stranger s{controller->endpoint()};
  s.send(encode(first_client_address, 0, welcome{7}));
  s.send(encode(first_client_address, 0, refusal{{reason::kind::unknown, "no"}}));
  REQUIRE(s.greet() == first_client_address + 1);  // the first answer that is received
  CHECK(controller->counts().strangers == 2);
}

TEST_CASE("a frame with a forged sender uses credit, which is returned") {
  auto controller = a_controller(16);
  mailbox at_controller{controller};
  stranger s{controller->endpoint()};
  const auto me = s.greet();
  for (std::uint64_t n = 0; n < 200; ++n) {
    s.send(numbered(me + 1, 0, n));
    if (n % 4 == 3) CHECK(std::get<credit>(s.receive()).frames == 4);
  }
  s.send(numbered(me, 0, 7));
  REQUIRE(at_controller.has(1));
  CHECK(number_of(at_controller.at(0)) == 7);
  CHECK(controller->counts().strangers == 200);
}
