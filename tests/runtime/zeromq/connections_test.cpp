#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>

#include "harness/resident_bytes.hpp"
#include "runtime/host/log.hpp"
#include "runtime/keys.hpp"
#include "runtime/tcp.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

frame numbered_from(address from, address to, std::uint64_t n) {
  return runtime::test::numbered(from, to, n);
}

}  // namespace

TEST_CASE("when one of two connections breaks, it is restored and carries frames again") {
  const key_directory keys;
  auto controller = must_open(keys.host("controller"));
  mailbox at_controller{controller};
  proxy between{port_of(controller->endpoint())};
  auto o = keys.host("dc1/gateway", between.endpoint());
  o.listen.clear();
  o.connections = 2;
  auto gateway = must_open(o);
  mailbox at_gateway{gateway};
  REQUIRE(gateway->wait_until_greeted(long_s));
  const auto arrives = [&](std::uint64_t n, std::uint32_t lane) {
    for (const auto& f : at_gateway.take())
      if (runtime::test::number_of(f) == n && peek(f.header.bytes())->to == dc1) return true;
    // A lost frame is sent again.
    controller->send(dc1, numbered_from(0, dc1, n), lane);
    return false;
  };
  const auto returns = [&](std::uint64_t n, std::uint32_t lane) {
    for (const auto& f : at_controller.take())
      if (runtime::test::number_of(f) == n) return true;
    gateway->send(0, numbered_from(dc1, 0, n), lane);
    return false;
  };
  for (const std::uint32_t lane : {0U, 1U})
    REQUIRE(eventually([&] { return arrives(lane, lane); }));
  for (std::uint64_t round = 1; round <= 4; ++round) {
    // While the connection is away the controller writes to it, and learns that it is gone.
    const auto lost = controller->counts().lost;
    between.cut(round % 2);
    REQUIRE(eventually([&] {
      for (const std::uint32_t lane : {0U, 1U})
        controller->send(dc1, numbered_from(0, dc1, 5), lane);
      return controller->counts().lost > lost;
    }));
    between.mend();
    for (const std::uint32_t lane : {0U, 1U}) {
      REQUIRE(eventually([&] { return arrives(100 * round + lane, lane); }));
      REQUIRE(eventually([&] { return returns(100 * round + lane, lane); }));
    }
  }
  CHECK_FALSE(gateway->refused());
}

TEST_CASE("an interrupted handshake is retried, and does not count as a key mismatch") {
  const key_directory keys;
  auto first = must_open(keys.host("controller"));
  const auto endpoint = first->endpoint();
  first.reset();
  auto o = keys.host("dc1/gateway", endpoint);
  o.listen.clear();
  o.connections = 2;
  auto gateway = must_open(o);
  mailbox at_gateway{gateway};
  {
    slammer closes_all{port_of(endpoint)};
    REQUIRE(eventually([&] { return closes_all.slammed() >= 8; }));
    CHECK_FALSE(gateway->refused());
  }
  auto c = keys.host("controller");
  c.listen = endpoint;
  auto controller = must_open(c);
  mailbox at_controller{controller};
  CHECK(gateway->wait_until_greeted(long_s));
}

TEST_CASE("a refused host keeps asking, and is accepted once its key is in the list") {
  const key_directory keys;
  scratch copy;
  std::filesystem::copy(keys.path(), copy.path(), std::filesystem::copy_options::recursive);
  std::ifstream whole{keys.path() + "/authorized"};
  std::ofstream partial{copy.path("authorized")};
  for (std::string line; std::getline(whole, line);)
    if (!line.starts_with("dc1/gateway ")) partial << line << '\n';
  partial.close();

  auto c = keys.host("controller");
  c.keys = copy.path();
  auto strict = must_open(c);
  auto received = std::make_unique<mailbox>(strict);
  auto o = keys.host("dc1/gateway", strict->endpoint());
  o.listen.clear();
  auto gateway = must_open(o);
  mailbox at_gateway{gateway};
  const auto greeted = gateway->wait_until_greeted(long_s);
  REQUIRE_FALSE(greeted);
  CHECK(greeted.error().code == reason::kind::refused);
  CHECK(greeted.error().text.find("does not accept the key of dc1/gateway") != std::string::npos);

  c.listen = strict->endpoint();
  c.keys = keys.path();
  received.reset();
  strict.reset();
  auto controller = must_open(c);
  mailbox at_controller{controller};
  CHECK(eventually([&] { return gateway->greeted(); }));
  CHECK_FALSE(gateway->refused());
}

TEST_CASE("a host's place cannot be taken without its key, whatever the incarnation") {
  const key_directory keys;
  auto controller = must_open(keys.host("controller"));
  mailbox at_controller{controller};
  auto o = keys.host("dc1/gateway", controller->endpoint());
  o.listen.clear();
  auto gateway = must_open(o);
  mailbox at_gateway{gateway};
  REQUIRE(gateway->wait_until_greeted(long_s));
  for (const auto* key : {"alice", "operator", "a-0", "dc2/gateway"}) {
    scratch theirs;
    std::filesystem::create_directories(theirs.path("dc1"));
    std::filesystem::copy_file(keys.path() + "/authorized", theirs.path("authorized"));
    std::filesystem::copy_file(keys.path() + "/" + key + ".key", theirs.path("dc1/gateway.key"));
    auto i = keys.host("dc1/gateway", controller->endpoint());
    i.listen.clear();
    i.keys = theirs.path();
    i.incarnation = std::uint64_t{1} << 62;
    auto impostor = must_open(i);
    impostor->listen([](const frame&) {});
    const auto greeted = impostor->wait_until_greeted(long_s);
    REQUIRE_FALSE(greeted);
    CHECK(greeted.error().text == std::string{"dc1/gateway used the key of "} + key);
  }
  REQUIRE(gateway->send(0, numbered_from(dc1, 0, 5)));
  CHECK(at_controller.has(1));
  CHECK_FALSE(gateway->refused());
}

TEST_CASE("a peer that does not read costs bounded memory, whatever credit it claims") {
  zeromq_options o;
  o.name = "controller";
  o.cluster = two_datacenters();
  o.listen = "tcp://127.0.0.1:*";
  auto controller = must_open(o);
  mailbox at_controller{controller};
  raw_dealer greedy{controller->endpoint(), 1};
  const auto me = greedy.greet();
  const payload reply{std::vector<std::byte>(64 << 10)};
  const auto before = resident_bytes();
  std::size_t refused = 0;
  for (std::uint64_t n = 0; n < 20'000; ++n) {
    greedy.send(encode(me, 0, credit{0xffffffff}));
    if (!controller->send(me, numbered_from(0, me, n)) ||
        !controller->send(me, runtime::test::numbered(0, me, n, reply)))
      ++refused;
  }
  CHECK(refused > 10'000);  // 1.3 GB in all
  CHECK(controller->counts().full >= refused);
  const auto grown = resident_bytes() - std::min(before, resident_bytes());
  CHECK(grown < 96U << 20);

  // Another client is still served.
  raw_dealer honest{controller->endpoint(), 2};
  const auto other = honest.greet();
  REQUIRE(controller->send(other, numbered_from(0, other, 7)));
  CHECK(std::get<query_jobs>(honest.receive()).request == 7);
}
