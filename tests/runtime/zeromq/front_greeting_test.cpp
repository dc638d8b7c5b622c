#include "runtime/raw_peers.hpp"

// The greeting of a front.

using namespace troupe;
using namespace troupe::runtime;
using namespace troupe::runtime::test;

TEST_CASE("a front is welcomed by its datacenter's gateway alone, and may only speak for itself") {
  auto c = two_datacenters();
  c.fronts = {{"front-1", 0, ""}, {"front-2", 1, ""}};
  const auto front_1 = front_address(0);
  const auto greets_as = [&](raw_connector& at, const std::string& name) {
    const hello as{name, 1, entry_of(c, front_1), {}};
    return at.greet(as, front_1);
  };
  for (const auto* host : {"controller", "dc1/gateway", "dc2/gateway", "a-0", "front-2"}) {
    INFO(host);
    zeromq_options o;
    o.cluster = c;
    o.name = host;
    o.listen = "tcp://127.0.0.1:*";
    const auto net = must_open(o);
    mailbox at{net};
    raw_connector front{net->endpoint()};
    const auto answer = greets_as(front, "front-1");
    const bool its_gateway = o.name == "dc1/gateway";
    REQUIRE(std::holds_alternative<welcome>(answer) == its_gateway);
    if (!its_gateway) continue;
    CHECK(std::get<welcome>(answer).you == front_1);
    raw_connector stranger{net->endpoint()};
    CHECK(std::holds_alternative<refusal>(greets_as(stranger, "front-3")));
    front.send(numbered(front_1, 0, 5));
    front.send(numbered(front_address(1), 0, 6));
    front.send(numbered(node_address(0), 0, 7));
    front.send(numbered(front_1, 0, 8));
    REQUIRE(at.has(2));
    CHECK(number_of(at.at(0)) == 5);
    CHECK(number_of(at.at(1)) == 8);
    CHECK(net->counts().strangers == 2);
    CHECK(net->send(front_1, numbered(0, front_1, 9)));
    const auto m = front.receive_within(long_s);
    REQUIRE(m);
  }
}
