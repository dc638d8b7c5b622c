#include <catch2/catch.hpp>

#include "actors/node/guest_supervisor.hpp"
#include "actors/serving/prefill/guests_fixture.hpp"
#include "actors/training/stage_fixture.hpp"

// A node's guests, from the setups of its stages to what they answer. The rest of the node, the
// network and the other hosts are the test itself.

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;

namespace {

using prompt_state = prefill_progress::state;

class node_with_guests : public actor_fixture {
 public:
  node_with_guests() {
    options.cluster = harness::small_cluster();
    start(here, [this](const messenger&) {
      return caf::actor_cast<caf::actor>(world.system().spawn([this](node_actor::pointer me) {
        self = me;
        node_messenger_ = messenger{host, node_actor{me}};
        return behavior();
      }));
    });
  }

  /// Stage 0 of a pipeline, with a guest that has all layers.
  static stage_setup with_guest(std::uint32_t pipeline = 0, std::uint64_t incarnation = 3) {
    auto s = one_of_three(0);
    s.name.pipeline = pipeline;
    s.incarnation = incarnation;
    s.devices = {static_cast<std::uint16_t>(pipeline)};
    s.guest = guest_setup{lending_of_eight(), group_of(1).guests[0], {}};
    s.guest->place.stage = s.name;
    return s;
  }
  prefill_order order_of(const stage_setup& s, std::uint64_t number, std::uint32_t guest = 0) {
    prefill_order o;
    o.name = {decoder, 3, number};
    o.sequence = number;
    o.tokens = 200;
    o.guest = guest;
    o.group = group_of(1);
    o.group.guests[0].stage = s.name;
    o.group.guests[0].node = here;
    o.latest_s = 100;
    return o;
  }
  void give(address from, const message& m) {
    guests.on_message(from, m, {});
    settle();
  }
  /// Guests have the device for that long.
  void idle(const std::shared_ptr<gpu::device_executor>& e, double s) {
    e->idle_for(s);
    advance(s);
  }
  /// A guest that the supervisor does not know, until it has opened its model.
  void open(guest_options o) {
    o.messenger = node_messenger_;
    const auto opened = spawn_actor<guest_state>(world.system(), std::move(o));
    settle();
    caf::anon_send_exit(opened, caf::exit_reason::kill);
    settle();
  }

  /// The states of a prompt that the gateway has received since the last call, in order.
  std::vector<prompt_state> states_of(std::uint64_t number) {
    std::vector<prompt_state> states;
    std::erase_if(sent, [&](const auto& m) {
      const auto* p = std::get_if<prefill_progress>(&m.what);
      if (!p || p->name.number != number) return false;
      CHECK(m.to == gateway);
      states.push_back(p->now);
      why = p->why.text;
      return true;
    });
    return states;
  }

  const address here = a0, decoder = a1, gateway = dc1;
  node_actor::pointer self = nullptr;
  node_options options;
  guest_supervisor guests{{self, host, options}};
  std::string why;  // of the latest of these states

 private:
  messenger node_messenger_;
};

}  // namespace

TEST_CASE("a stage that lends its bubbles has a guest and an executor, others have none") {
  node_with_guests n;
  auto plain = node_with_guests::with_guest();
  plain.guest.reset();
  CHECK_FALSE(n.guests.set_up(plain));
  const auto s = node_with_guests::with_guest();
  const auto e = n.guests.set_up(s);
  REQUIRE(e);
  n.give(n.gateway, n.order_of(s, 1));
  CHECK(n.states_of(1) == std::vector{prompt_state::held});
  CHECK(n.count<prefill_block>() == 0);  // the training has lent nothing yet
  n.idle(e, 10);
  CHECK(n.states_of(1) == std::vector{prompt_state::ended});
  CHECK(n.count<prefill_block>() > 0);
}

TEST_CASE("a guest goes on, with its prompts, beside the stage that replaces its own") {
  node_with_guests n;
  const auto s = node_with_guests::with_guest();
  const auto e = n.guests.set_up(s);
  n.give(n.gateway, n.order_of(s, 1));
  n.states_of(1);
  const auto again = node_with_guests::with_guest(0, 4);
  CHECK(n.guests.set_up(again) == e);
  n.idle(e, 10);
  CHECK(n.states_of(1) == std::vector{prompt_state::ended});

  SECTION("another one takes its place if the layers differ") {
    n.give(n.gateway, n.order_of(s, 2));
    n.states_of(2);
    auto other = again;
    other.guest->place.layers = 4;
    CHECK(n.guests.set_up(other) == e);  // the device's
    n.idle(e, 10);
    CHECK(n.states_of(2).empty());
    n.give(n.gateway, n.order_of(s, 3));
    CHECK(n.states_of(3) == std::vector{prompt_state::gone});
    CHECK(n.why.find("other layers") != std::string::npos);
  }
  SECTION("and no one if the new stage lends nothing") {
    auto plain = again;
    plain.guest.reset();
    CHECK_FALSE(n.guests.set_up(plain));
    n.give(n.gateway, n.order_of(s, 2));
    CHECK(n.states_of(2) == std::vector{prompt_state::gone});
  }
  SECTION("on another device it begins anew") {
    auto moved = again;
    moved.devices = {1};
    const auto there = n.guests.set_up(moved);
    REQUIRE(there);
    CHECK(there != e);
    n.give(n.gateway, n.order_of(s, 2));
    n.idle(e, 10);
    CHECK(n.states_of(2) == std::vector{prompt_state::held});
    n.idle(there, 10);
    CHECK(n.states_of(2) == std::vector{prompt_state::ended});
  }
}

TEST_CASE("guests of two stages have a device and prompts of their own") {
  node_with_guests n;
  const auto a = node_with_guests::with_guest(0), b = node_with_guests::with_guest(1);
  const auto on_a = n.guests.set_up(a), on_b = n.guests.set_up(b);
  CHECK(on_a != on_b);
  n.give(n.gateway, n.order_of(a, 1));
  n.give(n.gateway, n.order_of(b, 2));
  n.states_of(1);
  n.states_of(2);
  n.idle(on_b, 10);
  CHECK(n.states_of(1).empty());
  CHECK(n.states_of(2) == std::vector{prompt_state::ended});
  n.give(n.gateway, cancel_prefill{{n.decoder, 3, 1}});
  CHECK(n.states_of(1) == std::vector{prompt_state::gone});
}

TEST_CASE("only the gateway of its datacenter gives a guest orders, or cancels them") {
  node_with_guests n;
  const auto s = node_with_guests::with_guest();
  const auto e = n.guests.set_up(s);
  for (const auto other : {gateway_address(1), n.decoder, controller_address})
    n.give(other, n.order_of(s, 1));
  CHECK(n.states_of(1).empty());
  n.give(n.gateway, n.order_of(s, 1));
  n.give(n.decoder, cancel_prefill{{n.decoder, 3, 1}});
  CHECK(n.states_of(1) == std::vector{prompt_state::held});
  n.idle(e, 10);
  CHECK(n.states_of(1) == std::vector{prompt_state::ended});
}

TEST_CASE("orders for stages that are not on a node are answered as gone") {
  node_with_guests n;
  const auto s = node_with_guests::with_guest();
  n.give(n.gateway, n.order_of(s, 1));
  CHECK(n.states_of(1) == std::vector{prompt_state::gone});
  CHECK(n.why.find("not here") != std::string::npos);
  n.guests.set_up(s);
  n.give(n.gateway, n.order_of(s, 2, 7));  // there is no such guest in its group
  CHECK(n.states_of(2) == std::vector{prompt_state::gone});

  n.guests.stop(s.name.lease + 1);
  n.give(n.gateway, n.order_of(s, 3));
  CHECK(n.states_of(3) == std::vector{prompt_state::held});
  n.guests.stop(s.name.lease);
  n.give(n.gateway, n.order_of(s, 4));
  CHECK(n.states_of(4) == std::vector{prompt_state::gone});
}

TEST_CASE("the guest of a lease that is over gets no more of the device") {
  node_with_guests n;
  const auto s = node_with_guests::with_guest();
  const auto e = n.guests.set_up(s);
  n.give(n.gateway, n.order_of(s, 1));
  n.states_of(1);
  n.guests.stop(s.name.lease);
  n.idle(e, 10);
  CHECK(n.states_of(1).empty());
  CHECK(e->take_counts().guest_steps == 0);
}

TEST_CASE("a guest that has ended while its model was loading does not get the device") {
  struct lent_device final : gpu::device_executor {
    void idle_for(double) override {}
    double busy() override { return 0; }
    void set_guard(double) override {}
    void lend(std::shared_ptr<gpu::guest_work> to) override { guest = std::move(to); }
    void wake() override {}
    gpu::executor_counts take_counts() override { return {}; }
    std::shared_ptr<gpu::guest_work> guest;
  };
  const auto device = std::make_shared<lent_device>();
  const auto next = std::make_shared<simulated_guest>([] { return 0.0; }, nullptr);
  device_loan of_next{device};
  bool ends = false;
  guest_options o;
  o.shape = *shape_of(*node_with_guests::with_guest().guest, 1);
  o.executor = device;
  o.loan = std::make_shared<device_loan>(device);
  o.create = [&, loan = o.loan](
                 guest_shape&,
                 const guest_engine::listener&) -> expected<std::shared_ptr<guest_engine>> {
    if (ends) {
      loan->end();
      of_next.begin(next);
    }
    return std::make_shared<simulated_guest>([] { return 0.0; }, nullptr);
  };
  node_with_guests n;
  SECTION("it has not ended") {
    n.open(o);
    CHECK(device->guest);
    o.loan->end();
    CHECK_FALSE(device->guest);
  }
  SECTION("the next one keeps it") {
    ends = true;
    n.open(o);
    CHECK(device->guest == next);
    o.loan->end();
    CHECK(device->guest == next);
  }
}

TEST_CASE(
    "a stage on several devices has no guest, and orders for one are answered by the reason") {
  node_with_guests n;
  auto s = node_with_guests::with_guest();
  s.devices = {0, 1};
  CHECK_FALSE(n.guests.set_up(s));
  n.give(n.gateway, n.order_of(s, 1));
  CHECK(n.states_of(1) == std::vector{prompt_state::gone});
  CHECK(n.why.find("2 devices") != std::string::npos);
}
