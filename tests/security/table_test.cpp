#include <fstream>
#include <sstream>

#include "harness/source_dir.hpp"
#include "security/keyed.hpp"

using namespace troupe;
using namespace troupe::test;
using actors::role;

namespace {

constexpr std::pair<role, const char*> role_names[] = {{role::client, "client"},
                                                       {role::node, "node"},
                                                       {role::gateway, "gateway"},
                                                       {role::controller, "controller"},
                                                       {role::front, "front"}};

/// Two datacenters, each with a front.
cluster with_fronts() {
  auto c = two_datacenters();
  c.fronts = {{"front-1", 0, ""}, {"front-2", 1, ""}};
  return c;
}
constexpr address front_1 = front_address(0), front_2 = front_address(1);

std::string words_of(std::uint8_t roles) {
  std::string all;
  for (const auto& [r, name] : role_names)
    if ((roles & static_cast<std::uint8_t>(r)) != 0)
      all += (all.empty() ? "" : ", ") + std::string{name};
  return all.empty() ? "nobody" : all;
}

const char* words_of(actors::condition c) {
  switch (c) {
    case actors::condition::is_operator:
      return "an operator";
    case actors::condition::owner:
      return "the job's owner, or an operator";
    case actors::condition::lease_node:
      return "a node of the lease";
    case actors::condition::trainer:
      return "the lease's first node";
    case actors::condition::same_datacenter:
      return "of the same datacenter";
    case actors::condition::decoder:
      return "a decoder of that lease, as the controller states";
    case actors::condition::lender:
      return "the trainer of a lease that lends, as the controller states";
    case actors::condition::guest:
      return "a guest of that prefill or lending";
    case actors::condition::receiver:
      return "the one for whom the blocks are";
    case actors::condition::asked_decoder:
      return "the node to which the request was given";
    default:
      return "";
  }
}

}  // namespace

TEST_CASE("every type of message has a row, and exactly the roles on the page may send it") {
  const auto c = with_fronts();
  const std::pair<role, address> hosts[] = {{role::client, client_1},
                                            {role::node, a0},
                                            {role::gateway, dc1},
                                            {role::controller, 0},
                                            {role::front, front_1}};
  std::size_t allowed = 0;
  for_each_message([&](const message& m) {
    const auto type = type_of(m);
    for (const auto& [from_role, from] : hosts)
      for (const auto& [to_role, to] : hosts) {
        INFO(name_of(type) << " from " << from << " to " << to);
        const bool wanted = expected_in_table(name_of(type), from_role, to_role);
        allowed += wanted ? 1 : 0;
        // At the receiver itself, and at a gateway that passes it on.
        CHECK(actors::may_arrive(c, to, {type, from, to}).has_value() == wanted);
        CHECK(actors::may_arrive(c, dc1, {type, from, to}).has_value() == wanted);
      }
  });
  CHECK(allowed == 60);
}

TEST_CASE("messages about prefills stay in a datacenter, and the others may leave it") {
  const auto c = with_fronts();
  const std::pair<role, address> near[] = {
      {role::node, a0}, {role::gateway, dc1}, {role::front, front_1}};
  const std::pair<role, address> far[] = {
      {role::node, b0}, {role::gateway, dc2}, {role::front, front_2}};
  for_each_message([&](const message& m) {
    const auto type = type_of(m);
    for (const auto& [from_role, from] : near)
      for (const auto& [to_role, to] : far) {
        INFO(name_of(type) << " from " << from << " to " << to);
        const bool wanted = expected_in_table(name_of(type), from_role, to_role) &&
                            !stays_in_datacenter(name_of(type));
        for (const address self : {dc1, dc2, to})
          CHECK(actors::may_arrive(c, self, {type, from, to}).has_value() == wanted);
      }
  });
  const auto why = actors::may_arrive(c, dc1, {type_id<prefill_block>, a0, b0}).error();
  CHECK(why.text == "a-0 may not send a prefill_block to b-0, which is in another datacenter");
}

TEST_CASE("frames with unknown types or addresses are refused, as is a client's frame for a node") {
  const auto c = two_datacenters();
  CHECK_FALSE(actors::may_arrive(c, 0, {999, client_1, 0}));
  CHECK_FALSE(actors::may_arrive(c, 0, {type_id<node_report>, 77, 0}));
  CHECK_FALSE(actors::may_arrive(c, a0, {type_id<node_orders>, 0, 77}));
  CHECK_FALSE(actors::may_arrive(c, controller_address, {type_id<read_log>, client_1, a0}));
  CHECK(actors::may_arrive(c, controller_address, {type_id<log_chunk>, a0, client_1}));
}

TEST_CASE("docs/security.md shows the permissions that hosts enforce") {
  std::ifstream in{troupe::test::source_dir() + "/docs/security.md"};
  std::stringstream text;
  text << in.rdbuf();
  for (const auto& p : actors::permissions()) {
    const std::string second = words_of(p.then);
    const auto line = "| `" + std::string{p.name} + "` | " + words_of(p.from) + " | " +
                      words_of(p.to) + " | " + words_of(p.also) +
                      (second.empty() ? "" : "; " + second) + " |";
    INFO(line);
    CHECK(text.str().find(line) != std::string::npos);
  }
}

TEST_CASE("only a job's owner and operators may act on it") {
  CHECK(actors::may_act_on({"alice", false}, "alice"));
  CHECK_FALSE(actors::may_act_on({"alice", false}, "bob"));
  CHECK(actors::may_act_on({"root", true}, "bob"));
  CHECK(actors::may_act_on(runtime::caller{}, "local"));
}
