#include "actors/protocol/permissions.hpp"

#include <catch2/catch.hpp>

#include "harness/small_cluster.hpp"
#include "messages/wire/message.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

class still_clock final : public runtime::clock {
 public:
  double now_s() const override { return 5; }
  double wall_s() const override { return 5; }
};

constexpr address dc1 = 1, dc2 = 2, a0 = node_address(0), a1 = node_address(1), nobody = 1000;
constexpr address a_client = first_client_address + 1;

bool may(address self, address from, address to, std::uint16_t type) {
  return may_arrive(*harness::small_cluster(), self, {type, from, to}).has_value();
}

}  // namespace

TEST_CASE("an operator may act on every job, others on their own") {
  CHECK(may_act_on({"root", true}, "root"));
  CHECK(may_act_on({"root", true}, "somebody"));
  CHECK(may_act_on({"somebody", false}, "somebody"));
  CHECK_FALSE(may_act_on({"somebody", false}, "root"));
}

TEST_CASE("a message arrives if its sender's kind of host may send it to that kind") {
  CHECK(may(controller_address, a0, controller_address, type_id<node_report>));
  CHECK_FALSE(may(controller_address, dc1, controller_address, type_id<node_report>));
  CHECK_FALSE(may(controller_address, a_client, controller_address, type_id<node_report>));
  CHECK(may(a0, controller_address, a0, type_id<node_orders>));
  CHECK_FALSE(may(a0, a1, a0, type_id<node_orders>));
  CHECK(may(controller_address, a_client, controller_address, type_id<submit_job>));
  CHECK_FALSE(may(controller_address, a_client, controller_address, 60'000));
  CHECK_FALSE(may(controller_address, nobody, controller_address, type_id<node_report>));
  CHECK_FALSE(may(a0, controller_address, nobody, type_id<node_orders>));
  const auto why =
      may_arrive(*harness::small_cluster(), a0, {type_id<node_orders>, dc2, a0}).error();
  CHECK(why.code == reason::kind::refused);
  CHECK(why.text.starts_with("dc2/gateway may not send a "));
}

TEST_CASE("fronts talk to nodes, and nodes of one datacenter about prefills to each other") {
  auto c = *harness::small_cluster();
  c.fronts = {{"front-1", 1, ""}};
  const auto front = front_address(0);
  const auto between = [&](address from, address to, std::uint16_t type) {
    return may_arrive(c, to, {type, from, to}).has_value();
  };
  CHECK(between(front, a0, type_id<generate>));  // of another datacenter
  CHECK(between(a0, front, type_id<generated>));
  CHECK_FALSE(between(a0, a1, type_id<generate>));
  CHECK_FALSE(between(front, controller_address, type_id<submit_job>));
  CHECK_FALSE(between(a_client, a0, type_id<generate>));
  CHECK_FALSE(may(a0, front, a0, type_id<generate>));  // the cluster has no front
  CHECK(between(a0, a1, type_id<prefill_block>));
  CHECK_FALSE(between(a0, a1 + 1, type_id<prefill_block>));
  CHECK(between(a0, dc1, type_id<cancel_prefill>));
  CHECK(between(dc1, a0, type_id<cancel_prefill>));
  CHECK_FALSE(between(a0, a1, type_id<cancel_prefill>));
  CHECK_FALSE(between(dc2, dc1, type_id<cancel_prefill>));
  CHECK_FALSE(between(a0, dc2, type_id<prefill_request>));
  CHECK(between(a0, dc2, type_id<bubble_offer>));  // of a training over two datacenters
}

TEST_CASE("a client's request for a log goes to the controller, and past it to no node") {
  CHECK(may(controller_address, a_client, controller_address, type_id<read_log>));
  CHECK_FALSE(may(controller_address, a_client, a0, type_id<read_log>));
  CHECK(may(a0, a_client, a0, type_id<read_log>));
}

TEST_CASE("frames that may not arrive are counted and not admitted, the others are") {
  runtime::host h;
  h.self = a0;
  h.clock = std::make_shared<still_clock>();
  frame_guard guard{h, harness::small_cluster()};
  CHECK(guard.admits({type_id<node_orders>, controller_address, a0}));
  CHECK(guard.refused() == 0);
  for (std::uint64_t n = 1; n <= 3; ++n) {
    CHECK_FALSE(guard.admits({type_id<node_orders>, a1, a0}));
    CHECK(guard.refused() == n);
  }
  CHECK(guard.admits({type_id<node_orders>, controller_address, a0}));
  CHECK(guard.refused() == 3);
}
