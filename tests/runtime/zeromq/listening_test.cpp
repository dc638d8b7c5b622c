#include <sys/resource.h>

#include <atomic>
#include <set>

#include "runtime/host/log.hpp"
#include "runtime/keys.hpp"
#include "runtime/raw_peers.hpp"
#include "runtime/tcp.hpp"

// Connections to a host that listens: their lanes, their owners, and when they are replaced.

using namespace troupe;
using namespace troupe::runtime;
using runtime::test::number_of;
using runtime::test::numbered;
using runtime::test::raw_connector;
using troupe::test::eventually;
using troupe::test::key_directory;
using troupe::test::long_s;
using troupe::test::mailbox;
using troupe::test::must_open;
using troupe::test::two_datacenters;

namespace {

constexpr address gateway = 1;

zeromq_options listening() {
  zeromq_options o;
  o.name = "controller";
  o.cluster = two_datacenters();
  o.listen = "tcp://127.0.0.1:*";
  return o;
}

/// A routing id as Troupe's hosts make it: connection `number` of `of`.
std::string id_of(int number, int of, char begin = 'T', std::size_t size = 19) {
  std::string id(size, 'x');
  id[0] = begin;
  id[17] = static_cast<char>(number);
  id[18] = static_cast<char>(of);
  return id;
}

message greet_as_gateway(raw_connector& c, std::uint64_t incarnation = 1,
                         const std::string& name = "dc1/gateway") {
  const auto who = find_host(two_datacenters(), name).value_or(gateway);
  return c.greet(hello{name, incarnation, entry_of(two_datacenters(), who), {}}, gateway);
}

bool welcomes(raw_connector& c, std::uint64_t incarnation = 1) {
  return std::holds_alternative<welcome>(greet_as_gateway(c, incarnation));
}

/// Do the lane's frames take this connection?
bool carries(mailbox& from, raw_connector& to, std::uint32_t lane) {
  static std::uint64_t number = 0;
  if (!from.net().send(gateway, numbered(0, gateway, ++number), lane)) return false;
  const auto m = to.receive_within(2);
  return m && std::get<query_jobs>(*m).request == number;
}

}  // namespace

TEST_CASE("lane 0 uses the first connection, and the other lanes share the rest in turn") {
  const auto net = must_open(listening());
  mailbox at{net};
  raw_connector first{net->endpoint(), id_of(0, 3)}, second{net->endpoint(), id_of(1, 3)},
      third{net->endpoint(), id_of(2, 3)};
  for (auto* c : {&first, &second, &third}) REQUIRE(welcomes(*c));
  for (const std::uint32_t lane : {1U, 3U, 5U}) CHECK(carries(at, second, lane));
  for (const std::uint32_t lane : {2U, 4U, 6U}) CHECK(carries(at, third, lane));
  CHECK(carries(at, first, 0));
}

TEST_CASE("with one or two connections, lane 7 uses the last one") {
  const auto net = must_open(listening());
  mailbox at{net};
  raw_connector only{net->endpoint(), id_of(0, 1)};
  REQUIRE(welcomes(only));
  CHECK(carries(at, only, 7));
  raw_connector first{net->endpoint(), id_of(0, 2)}, second{net->endpoint(), id_of(1, 2)};
  for (auto* c : {&first, &second}) REQUIRE(welcomes(*c));
  CHECK(carries(at, second, 7));
  CHECK(carries(at, first, 0));
}

TEST_CASE(
    "a routing id that does not name one of at most 64 connections counts as the only connection") {
  const auto net = must_open(listening());
  mailbox at{net};
  {
    raw_connector last{net->endpoint(), id_of(63, 64)};
    REQUIRE(welcomes(last));
    CHECK(carries(at, last, 63));
    CHECK(net->send(gateway, numbered(0, gateway, 1), 0));
    CHECK_FALSE(last.receive_within(0.02));
  }
  for (const auto& id : {id_of(2, 65), id_of(2, 2), id_of(1, 2, 'U'), id_of(1, 2, 'T', 20),
                         std::string{"another program"}}) {
    raw_connector c{net->endpoint(), id};
    REQUIRE(welcomes(c, 2));
    CHECK(carries(at, c, 0));
  }
}

TEST_CASE(
    "a newer incarnation replaces all connections of the older one, and queued frames are lost") {
  const auto net = must_open(listening());
  mailbox at{net};
  raw_connector old{net->endpoint(), id_of(0, 2)};
  REQUIRE(welcomes(old));
  // The other connection of two is not up yet: frames for it wait.
  for (std::uint64_t n = 0; n < 5; ++n) CHECK(net->send(gateway, numbered(0, gateway, n), 1));
  raw_connector fresh{net->endpoint(), id_of(0, 1)};
  REQUIRE(welcomes(fresh, 2));
  CHECK(net->counts().lost == 5);
  CHECK(carries(at, fresh, 0));
  old.send(numbered(gateway, 0, 1));
  CHECK(old.receive_a<refusal>().why.code == reason::kind::unknown);
  CHECK(std::get<refusal>(greet_as_gateway(old, 1)).why.code == reason::kind::stale);
  CHECK(carries(at, fresh, 0));
  fresh.send(numbered(gateway, 0, 9));
  CHECK(at.has(1));
}

TEST_CASE("every accepted frame counts as sent or as lost when a newer incarnation greets") {
  constexpr std::uint64_t restarts = 100;
  const auto net = must_open(listening());
  std::atomic<std::uint64_t> accepted = 0;
  net->listen([&](const frame& f) {
    net->handled(f);
    accepted += net->send(gateway, numbered(0, gateway, 1)) ? 1 : 0;
  });
  raw_connector c{net->endpoint(), id_of(0, 1)};
  REQUIRE(welcomes(c));
  for (std::uint64_t i = 2; i < 2 + restarts; ++i) {
    // The host may read both in one go: then what it replies to the first is still queued.
    c.send(numbered(gateway, 0, i));
    c.send(encode(gateway, 0, hello{"dc1/gateway", i, entry_of(two_datacenters(), gateway), {}}));
    while (!std::holds_alternative<welcome>(c.receive())) continue;
  }
  CHECK(accepted > 0);
  CHECK(net->counts().sent + net->counts().lost == accepted);
}

TEST_CASE("frames for a connection that is not up yet are queued, and sent once it is welcomed") {
  const auto net = must_open(listening());
  mailbox at{net};
  raw_connector one{net->endpoint(), id_of(0, 2)};
  REQUIRE(welcomes(one));
  for (std::uint64_t n = 0; n < 3; ++n) CHECK(net->send(gateway, numbered(0, gateway, n), 1));
  raw_connector other{net->endpoint(), id_of(1, 2)};
  other.send(encode(gateway, 0, hello{"dc1/gateway", 1, entry_of(two_datacenters(), gateway), {}}));
  other.receive_a<welcome>();
  REQUIRE(eventually([&] { return net->counts().sent == 3; }));
  CHECK(net->counts().lost == 0);
}

TEST_CASE("a refused host gets the reason with its name, truncated to 64 characters") {
  const auto net = must_open(listening());
  mailbox at{net};
  const auto why = [&](const std::string& name) {
    raw_connector c{net->endpoint()};
    return std::get<refusal>(greet_as_gateway(c, 1, name)).why.text;
  };
  const auto notified = [](const std::string& name) {
    return "no host '" + name + "' in cluster test";
  };
  CHECK(why("x") == notified("x"));
  CHECK(why(std::string(64, 'x')) == notified(std::string(64, 'x')));
  CHECK(why(std::string(65, 'x')) == notified(std::string(64, 'x') + "..."));
  CHECK(why("controller") == "controller must not connect to controller");
  CHECK(why("a-0") == "a-0 must not connect to controller");
  raw_connector malformed{net->endpoint()};
  auto f = encode(gateway, 0, hello{"dc1/gateway", 1, {}, {}});
  auto header = raw_connector::text(f.header);
  header.resize(header.size() - 3);
  malformed.send_parts({header, ""});
  CHECK(malformed.receive_a<refusal>().why.code == reason::kind::malformed);
  CHECK(net->counts().malformed == 1);
}

TEST_CASE("of two gateways, only the one that has to connect to the other is welcomed by it") {
  for (const bool first_listens : {true, false}) {
    auto o = listening();
    o.name = first_listens ? "dc1/gateway" : "dc2/gateway";
    const auto net = must_open(o);
    mailbox at{net};
    raw_connector other{net->endpoint()};
    const auto answer = greet_as_gateway(other, 1, first_listens ? "dc2/gateway" : "dc1/gateway");
    CHECK(std::holds_alternative<welcome>(answer) == first_listens);
    raw_connector itself{net->endpoint()};
    CHECK(std::holds_alternative<refusal>(greet_as_gateway(itself, 1, o.name)));
    for (const auto* name : {"controller", "b-0"}) {
      raw_connector c{net->endpoint()};
      CHECK(std::holds_alternative<refusal>(greet_as_gateway(c, 1, name)) ==
            (first_listens || name == std::string{"controller"}));
    }
    raw_connector client{net->endpoint()};
    CHECK(std::holds_alternative<refusal>(client.greet(hello{"somebody", 1})));
  }
}

TEST_CASE("a client above the client limit replaces the client with the oldest greeting") {
  auto o = listening();
  o.max_clients = 3;
  const auto net = must_open(o);
  mailbox at{net};
  std::vector<std::unique_ptr<raw_connector>> clients;
  std::vector<address> known;
  const auto come = [&] {
    clients.push_back(std::make_unique<raw_connector>(net->endpoint()));
    known.push_back(clients.back()->greet());
  };
  const auto is_served = [&](std::size_t i) {
    if (!net->send(known[i], numbered(0, known[i], i))) return false;
    return clients[i]->receive_a<query_jobs>().request == i;
  };
  for (int i = 0; i < 3; ++i) come();
  CHECK(std::set<address>(known.begin(), known.end()).size() == 3);
  CHECK(clients[0]->greet() == known[0]);  // again: it keeps its address
  come();
  CHECK_FALSE(is_served(1));
  for (const std::size_t i : {0, 2, 3}) CHECK(is_served(i));
  clients[1]->send(numbered(known[1], 0, 1));
  CHECK(clients[1]->receive_a<refusal>().why.code == reason::kind::unknown);
  // Clients that disconnect make room, and no warning is logged.
  std::atomic<int> warned{0};
  set_log_sink([&](log_level l, std::string_view) { warned += l == log_level::warn; });
  for (const std::size_t i : {2, 3}) {
    clients[i].reset();
    REQUIRE(eventually([&] { return !net->send(known[i], numbered(0, known[i], 1)); }));
  }
  for (int i = 0; i < 2; ++i) come();
  for (const std::size_t i : {0, 4, 5}) CHECK(is_served(i));
  set_log_sink({});
  CHECK(warned == 0);
  come();
  CHECK_FALSE(is_served(0));
  for (const std::size_t i : {4, 5, 6}) CHECK(is_served(i));
}

TEST_CASE("the send queues for clients are bounded per client and in total") {
  auto o = listening();
  o.window_frames = 1;
  o.queue_frames = 1000;
  const auto f = [](address to) {
    return numbered(0, to, 1, payload{std::vector<std::byte>(1000)});
  };
  const auto size = f(first_client_address + 1).size();
  o.client_queue_bytes = 4 * size;
  o.clients_bytes = 7 * size;
  const auto net = must_open(o);
  mailbox at{net};
  raw_connector first{net->endpoint()}, second{net->endpoint()};
  const auto one = first.greet(), two = second.greet();
  const auto fill = [&](address to) {
    int n = 0;
    while (net->send(to, f(to))) ++n;
    return n;
  };
  // The first frame is sent at once, and its credit is not returned.
  const auto goes = [&](raw_connector& c, address to) {
    REQUIRE(net->send(to, f(to)));
    c.receive_a<query_jobs>();
  };
  goes(first, one);
  goes(second, two);
  REQUIRE(eventually([&] { return net->counts().sent == 2; }));
  const auto accepts = [&](address to, int frames) {
    int n = 0;
    CHECK(eventually([&] { return (n += fill(to)) == frames; }));  // sent frames may still count
    CHECK(fill(to) == 0);
  };
  accepts(one, 4);
  accepts(two, 3);
  CHECK(net->counts().full >= 4);
  first.send(encode(one, 0, credit{1}));
  first.receive_a<query_jobs>();
  REQUIRE(eventually([&] { return net->counts().sent == 3; }));
  CHECK(eventually([&] { return net->send(two, f(two)); }));
  CHECK(fill(one) == 0);
  CHECK(fill(two) == 0);
  // A client that connects again under its routing id loses nothing.
  const auto lost = net->counts().lost;
  for (int i = 0; i < 2; ++i) {
    raw_connector next{net->endpoint(), "the same"};
    next.greet();
  }
  CHECK(net->counts().lost == lost);
}

TEST_CASE(
    "a client that reads nothing is sent frames up to the limits of its connection and queue") {
  constexpr std::size_t frame_bytes = 1 << 20, unsent_frames = 16, queued_frames = 4;
  const troupe::test::scratch room;
  auto o = listening();
  o.listen = "ipc://" + (room / "controller");  // its buffers are small
  o.window_bytes = 1 << 30;
  o.client_unsent_bytes = unsent_frames * frame_bytes;
  o.client_queue_bytes = queued_frames * frame_bytes;
  const auto net = must_open(o);
  mailbox at{net};
  zmq::context_t context;
  zmq::socket_t client{context, zmq::socket_type::dealer};
  client.set(zmq::sockopt::linger, 0);
  client.set(zmq::sockopt::rcvhwm, 1);
  client.set(zmq::sockopt::rcvtimeo, static_cast<int>(1000 * long_s));
  client.connect(net->endpoint());
  const auto h = encode(first_client_address, 0, hello{"somebody", 1});
  client.send(zmq::buffer(raw_connector::text(h.header)), zmq::send_flags::sndmore);
  client.send(zmq::message_t{}, zmq::send_flags::none);
  zmq::message_t header, body;
  REQUIRE((client.recv(header) && client.recv(body)));
  const auto m = decode({static_cast<const std::byte*>(header.data()), header.size()});
  const auto to = std::get<welcome>(m->second).you;
  const payload content{std::vector<std::byte>(frame_bytes)};
  std::size_t accepted = 0;
  CHECK(eventually([&] {
    while (accepted < unsent_frames + queued_frames && net->send(to, numbered(0, to, 1, content)))
      ++accepted;
    return accepted == unsent_frames + queued_frames;
  }));
}

TEST_CASE(
    "frames beyond a peer's credit are accepted up to a bound that allows for a new greeting") {
  auto o = listening();
  o.window_frames = 16;
  const auto net = must_open(o);
  mailbox at{net, false};
  raw_connector c{net->endpoint()};
  const auto me = c.greet();
  for (std::uint64_t n = 0; n < 200; ++n) c.send(numbered(me, 0, n));
  REQUIRE(eventually([&] { return net->counts().received + net->counts().over_credit == 200; }));
  CHECK(net->counts().received == 5 * 16 + 1);
}

TEST_CASE("credit is returned by frames or by bytes, also for malformed and forged frames") {
  auto o = listening();
  const auto f = numbered(first_client_address + 9, 0, 1, payload{std::vector<std::byte>(3)});
  o.window_bytes = 4 * f.size();
  o.window_frames = 1000;
  const auto net = must_open(o);
  mailbox at{net, false};
  raw_connector c{net->endpoint()};
  c.greet();
  for (int i = 0; i < 3; ++i) {
    c.send(f);
    CHECK(c.receive_a<credit>().frames == 1);
    c.send_parts({std::string(f.size() - 10, '?'), std::string(10, '?')});
    CHECK(c.receive_a<credit>().frames == 1);
    CHECK(c.receive_a<refusal>().why.code == reason::kind::malformed);
    c.send_parts({std::string(f.size() / 2, '?'), ""});
    CHECK(c.receive_a<refusal>().why.code == reason::kind::malformed);
    c.send_parts({std::string(f.size() - f.size() / 2, '?'), ""});
    CHECK(c.receive_a<credit>().frames == 2);
    CHECK(c.receive_a<refusal>().why.code == reason::kind::malformed);
  }
  CHECK(net->counts().strangers == 3);
  CHECK(net->counts().malformed == 9);
}

TEST_CASE(
    "a client that greets again keeps its address; a client with another key gets a new one") {
  const key_directory keys;
  const auto net = must_open(keys.host("controller"));
  mailbox at{net};
  const auto ring = [&](const std::string& name) {
    auto r = load_keys(keys.path(), name);
    REQUIRE(r);
    return *r;
  };
  const auto alice = ring("alice"), bob = ring("bob"), root = ring("root");
  const auto id = "the same routing id";
  raw_connector first{net->endpoint(), id, &alice};
  const auto address_of_alice = first.greet();
  CHECK(first.greet() == address_of_alice);
  first.send(numbered(address_of_alice, 0, 1));
  REQUIRE(at.has(1));
  CHECK(net->caller_of(at.at(0)).name == "alice");
  CHECK_FALSE(net->caller_of(at.at(0)).is_operator);
  // ZeroMQ gives the routing id to the latest peer that requests it.
  raw_connector second{net->endpoint(), id, &bob};
  second.send(numbered(address_of_alice, 0, 2));
  CHECK(second.receive_a<refusal>().why.code == reason::kind::unknown);
  const auto address_of_bob = second.greet();
  CHECK(address_of_bob != address_of_alice);
  second.send(numbered(address_of_bob, 0, 3));
  REQUIRE(at.has(2));
  CHECK(number_of(at.at(1)) == 3);
  CHECK(net->caller_of(at.at(1)).name == "bob");
  raw_connector third{net->endpoint(), "another", &root};
  third.send(numbered(third.greet(), 0, 4));
  REQUIRE(at.has(3));
  CHECK(net->caller_of(at.at(2)).is_operator);
}

TEST_CASE("credit for a replaced client is discarded") {
  auto o = listening();
  o.max_clients = 1;
  o.window_frames = 4;
  const auto net = must_open(o);
  mailbox at{net, false};
  raw_connector first{net->endpoint()};
  first.send(numbered(first.greet(), 0, 1));
  REQUIRE(at.has(1));
  raw_connector second{net->endpoint()};
  const auto me = second.greet();
  net->handled(at.at(0));
  second.send(numbered(me, 0, 2));
  CHECK(at.has(2));
}

TEST_CASE("silent connections above the limit are closed, and this is logged once") {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 4096);
  ::setrlimit(RLIMIT_NOFILE, &files);
  std::atomic<int> said{0};
  set_log_sink([&](log_level, std::string_view line) {
    said += line.find("closed connections that exceeded the limit") != std::string_view::npos;
  });
  const auto net = must_open(listening());
  mailbox at{net};
  std::vector<int> silent;
  for (int i = 0; i < 515; ++i)
    silent.push_back(troupe::test::connect_to(troupe::test::port_of(net->endpoint())));
  const auto is_cut = [](int fd) {
    char c[256];
    for (;;) {
      const auto n = ::recv(fd, c, sizeof c, MSG_DONTWAIT);
      if (n <= 0) return n == 0;
    }
  };
  CHECK(eventually([&] { return is_cut(silent[0]) && is_cut(silent[2]); }));
  CHECK_FALSE(is_cut(silent[3]));
  CHECK(eventually([&] { return said == 1; }));
  raw_connector honest{net->endpoint()};
  honest.greet();
  for (const int fd : silent) ::close(fd);
  set_log_sink({});
}

TEST_CASE("message parts above 64 MiB are accepted only on connections that carry tensors") {
  const payload large{std::vector<std::byte>((64 << 20) + 1)};
  {
    const auto net = must_open(listening());
    mailbox at{net};
    raw_connector c{net->endpoint()};
    REQUIRE(welcomes(c));
    c.send(numbered(gateway, 0, 1, large));
    c.send(numbered(gateway, 0, 2));
    CHECK(c.receive_a<refusal>().why.code == reason::kind::unknown);  // it had to connect again
    CHECK(at.size() == 0);
  }
  auto o = listening();
  o.name = "dc1/gateway";
  const auto net = must_open(o);
  mailbox at{net};
  raw_connector c{net->endpoint()};
  REQUIRE(std::holds_alternative<welcome>(greet_as_gateway(c, 1, "dc2/gateway")));
  c.send(numbered(2, gateway, 1, large));
  CHECK(at.has(1));
}

TEST_CASE("with keys, a host greets as soon as its connection is up") {
  const key_directory keys;
  const auto controller = must_open(keys.host("controller"));
  mailbox at{controller};
  auto o = keys.host("dc1/gateway", controller->endpoint());
  o.greeting_s = 3600;
  const auto net = must_open(o);
  mailbox at_gateway{net};
  CHECK(net->wait_until_greeted(long_s));
}

TEST_CASE("only a gateway has links, and only to the gateways that it has to connect to") {
  const auto opens = [](const std::string& name, address to) {
    auto o = listening();
    o.name = name;
    o.links = {{to, "tcp://127.0.0.1:1", 1}};
    const auto made = zeromq_transport::open(o);
    return made || made.error().code != reason::kind::invalid;
  };
  CHECK(opens("dc2/gateway", 1));
  CHECK_FALSE(opens("dc1/gateway", 2));
  CHECK_FALSE(opens("dc2/gateway", 2));
  CHECK_FALSE(opens("dc2/gateway", 0));
  CHECK_FALSE(opens("dc2/gateway", 5));
  CHECK_FALSE(opens("controller", 1));
  CHECK_FALSE(opens("b-0", 1));
  auto o = listening();
  o.name = "dc2/gateway";
  o.links = {{1, "tcp://127.0.0.1:1", 0}};
  CHECK_FALSE(zeromq_transport::open(o));
}
