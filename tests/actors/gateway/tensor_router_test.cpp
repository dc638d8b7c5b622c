#include "actors/gateway/tensor_router.hpp"

#include <catch2/catch.hpp>

#include <cmath>

#include "actors/host_fixture.hpp"
#include "messages/codec/codec.hpp"

// A gateway's routes, whose transport, clock and links are the test itself.

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;

namespace {

/// Links whose events the test names.
class links_by_hand final : public runtime::link_pacing {
 public:
  bool paces(std::uint32_t) const override { return paced; }
  time_ns delay_ns(std::uint32_t) const override { return paced ? 5'000'000 : 0; }
  bool start(time_ns, std::uint32_t token, const transfer& t) override {
    if (refuses) return false;
    tokens.push_back(token);
    started.push_back(t);
    return true;
  }
  void start_small(time_ns, std::uint32_t token, std::uint32_t datacenter) override {
    tokens.push_back(token);
    small.push_back(datacenter);
  }
  time_ns next_event_at() const override { return next; }
  std::optional<event> take_event(time_ns) override {
    if (events.empty()) return {};
    const auto e = events.front();
    events.erase(events.begin());
    return e;
  }
  void forget(time_ns) override {}

  bool paced = false, refuses = false;
  time_ns next = never_ns;
  std::vector<std::uint32_t> tokens, small;
  std::vector<transfer> started;
  std::vector<event> events;
};

struct routed : host_fixture {
  std::shared_ptr<links_by_hand> links = std::make_shared<links_by_hand>();
  tensor_router router;

  explicit routed(bool paced = false) : host_fixture{dc1, 1000} {
    links->paced = paced;
    router = tensor_router{host, harness::small_cluster(), {links, 0}};
  }
  void frame_of(address from, address to, const message& m, std::size_t bytes = 0) {
    auto f = encode(from, to, m, payload{std::vector<std::byte>(bytes)});
    router.on_frame(*peek(f.header.bytes()), f);
  }
  void send(address from, address to, std::uint32_t microbatch, std::uint64_t bytes,
            bool simulated = false) {
    frame_of(from, to, tensor_of(microbatch, bytes), simulated ? 0 : bytes);
  }
  static tensor tensor_of(std::uint32_t microbatch, std::uint64_t bytes) {
    tensor t;
    t.from = {1, 0, 0};
    t.to_stage = 1;
    t.microbatch = microbatch;
    t.bytes = bytes;
    return t;
  }
  /// A tensor of one stripe from dc2.
  void stripe_of(address from, address to, std::uint64_t bytes, address gateway = dc2) {
    stripe s;
    s.transfer = ++stripes;
    s.from = from;
    s.to = to;
    s.what = tensor_of(stripes, bytes);
    frame_of(gateway, dc1, s, bytes);
  }
  time_ns now() const { return std::llround(clock->now * 1e9); }

  std::uint32_t stripes = 0;
};

}  // namespace

TEST_CASE("a tensor between nodes of the datacenter is passed on at once, and counted") {
  routed r;
  r.send(a0, a1, 1, 1000);
  REQUIRE(r.sent.size() == 1);
  CHECK(r.sent[0].to == a1);
  CHECK(r.sent[0].lane == runtime::tensor_lane);
  CHECK(r.net->acknowledged == 1);
  CHECK(r.router.traffic().relayed_bytes == 1000);
  r.send(a0, a1, 2, 500, true);
  CHECK(r.router.traffic().relayed_bytes == 1500);
  r.send(b0, a1, 3, 70, true);  // a simulated one that has crossed the WAN
  CHECK(r.router.traffic().wan_received_bytes == 70);
  CHECK(r.router.traffic().relayed_bytes == 1500);
  CHECK(r.router.traffic().wan_sent_bytes == 0);
  CHECK(r.router.next_event_at() == never_ns);
}

TEST_CASE("a node that takes no more gets its tensors later, in their order, and then they count") {
  routed r;
  r.net->full = {a1};
  for (const auto m : {1u, 2u}) r.send(a0, a1, m, 1000);
  CHECK(r.net->acknowledged == 0);
  CHECK(r.router.next_event_at() == r.now() + tensor_router::retry_every);
  r.router.on_event_due();
  CHECK(r.sent.empty());
  r.net->full.clear();
  r.send(a0, a1, 3, 1000);  // not before those that wait
  r.router.on_event_due();
  std::vector<std::uint32_t> order;
  for (const auto& t : r.messages<tensor>()) order.push_back(t.microbatch);
  CHECK(order == std::vector<std::uint32_t>{1, 2, 3});
  CHECK(r.net->acknowledged == 3);
  CHECK(r.router.next_event_at() == never_ns);
}

TEST_CASE("of a node's frames five hundred and twelve are held, more are acknowledged at once") {
  routed r;
  r.net->full = {a1};
  for (std::uint32_t m = 0; m < 515; ++m) r.send(a0, a1, m, 10);
  CHECK(r.net->acknowledged == 515 - tensor_router::max_in_flight);
  r.net->full.clear();
  r.router.on_event_due();
  CHECK(r.net->acknowledged == 515);
  CHECK(r.sent.size() == 515);
  // There is room for as many again.
  r.net->full = {a1};
  for (std::uint32_t m = 0; m < 512; ++m) r.send(a0, a1, m, 10);
  CHECK(r.net->acknowledged == 515);
}

TEST_CASE("frames that wait too long are dropped, and acknowledged") {
  routed r;
  r.net->full = {a1};
  r.send(a0, a1, 1, 1000);
  r.clock->now += 5;  // as long as a lease
  r.router.on_tick();
  CHECK(r.net->acknowledged == 0);
  r.clock->now += 0.1;
  r.router.on_tick();
  CHECK(r.net->acknowledged == 1);
  CHECK(r.sent.empty());
  CHECK(r.router.next_event_at() == never_ns);
}

TEST_CASE("a tensor for another datacenter leaves in stripes, over the lanes of its path") {
  routed r;
  auto t = routed::tensor_of(1, 100'000);
  t.path.first_pair = 1;
  t.path.pairs = 2;
  t.path.connections = 2;
  r.frame_of(a0, b1, t, 100'000);
  const auto sent = r.messages<stripe>();
  REQUIRE(sent.size() == 4);
  for (std::uint32_t i = 0; i < 4; ++i) {
    CHECK(sent[i].index == i);
    CHECK(sent[i].count == 4);
    CHECK(sent[i].offset == i * 25'000);
    CHECK(sent[i].from == a0);
    CHECK(sent[i].to == b1);
    CHECK(r.sent[i].lane == 3 + i);
    CHECK(r.sent[i].to == dc2);
    CHECK(r.sent[i].body.bytes().size() == 25'000);
  }
  CHECK(r.net->acknowledged == 1);
  CHECK(r.router.traffic().wan_sent_bytes == 100'000);
  REQUIRE(r.router.traffic().sent_to);
  CHECK(r.router.traffic().sent_to->at(1) == 100'000);
  CHECK(r.router.traffic().sent_to->at(0) == 0);
  // The next one of the flow has the next number; a large one is cut into several parts.
  t.microbatch = 2;
  t.bytes = 5'000'000;
  r.frame_of(a0, b1, t, 5'000'000);
  const auto more = r.messages<stripe>();
  REQUIRE(more.size() == 4 + 8);
  std::uint64_t at = 0;
  for (std::uint32_t i = 0; i < 8; ++i) {
    CHECK(more[4 + i].transfer == sent[0].transfer + 1);
    CHECK(more[4 + i].index == i);
    CHECK(more[4 + i].offset == at);
    at += r.sent[4 + i].body.bytes().size();
    CHECK(r.sent[4 + i].lane == 3 + i % 4);
  }
  CHECK(at == 5'000'000);
}

TEST_CASE("simulated tensors are counted by datacenter where that has a price, resent ones apart") {
  routed r;
  r.send(a0, b0, 1, 1000, true);
  CHECK(r.router.traffic().wan_sent_bytes == 1000);
  CHECK_FALSE(r.router.traffic().sent_to);
  auto priced = *harness::small_cluster();
  priced.wan.at(0).price_per_gb = 0.01;
  r.router = tensor_router{r.host, std::move(priced), {r.links, 0}};
  r.send(a0, b0, 1, 1000, true);
  const auto& traffic = r.router.traffic();
  REQUIRE(traffic.sent_to);
  CHECK(*traffic.sent_to == std::vector<std::uint64_t>{0, 1000, 0});
  CHECK_FALSE(traffic.resent_to);
  auto again = routed::tensor_of(2, 300);
  again.resent = true;
  r.frame_of(a0, b0, again, 0);
  CHECK(*traffic.sent_to == std::vector<std::uint64_t>{0, 1300, 0});
  REQUIRE(traffic.resent_to);
  CHECK(*traffic.resent_to == std::vector<std::uint64_t>{0, 300, 0});
  CHECK(traffic.wan_sent_bytes == 1300);
}

TEST_CASE("a tensor has left when the network has accepted its last stripe") {
  routed r;
  r.net->full = {dc2};
  r.send(a0, b0, 1, 100'000);
  CHECK(r.net->acknowledged == 0);
  CHECK(r.router.next_event_at() == r.now() + tensor_router::retry_every);
  r.net->full.clear();
  r.router.on_event_due();
  CHECK(r.net->acknowledged == 1);
  CHECK(r.count<stripe>() == 1);
}

TEST_CASE("a tensor that is sent again while the first may still arrive is dropped") {
  routed r{true};
  r.send(a0, b0, 1, 100'000);
  REQUIRE(r.links->started.size() == 1);
  r.send(a0, b0, 1, 100'000);
  r.send(a0, b0, 2, 100'000);
  CHECK(r.links->started.size() == 2);
  CHECK(r.net->acknowledged == 1);  // of the one that was dropped
  CHECK(r.router.traffic().wan_sent_bytes == 200'000);
  r.links->events = {{r.links->tokens[0], 0, true, true, true}};
  r.router.on_event_due();
  CHECK(r.net->acknowledged == 2);
  // Twice the delay of 5 ms, and 10 ms of the hosts.
  r.clock->now += 0.0199;
  r.send(a0, b0, 1, 100'000);
  CHECK(r.links->started.size() == 2);
  r.clock->now += 0.0002;
  r.send(a0, b0, 1, 100'000);
  CHECK(r.links->started.size() == 3);
}

TEST_CASE("on a paced link a tensor is acknowledged when it has left, and sent when it arrives") {
  routed r{true};
  auto t = routed::tensor_of(1, 70'000);
  t.path.first_pair = 2;
  t.path.pairs = 3;
  t.path.connections = 4;
  r.frame_of(a0, b0, t);  // simulated
  REQUIRE(r.links->started.size() == 1);
  const auto& x = r.links->started[0];
  CHECK(x.datacenter == 1);
  CHECK(x.lease == 1);
  CHECK(x.from_stage == 0);
  CHECK(x.to_stage == 1);
  CHECK(x.first_pair == 2);
  CHECK(x.pairs == 3);
  CHECK(x.connections == 4);
  CHECK(x.bytes == 70'000);
  CHECK(x.parts == 1);
  r.links->next = r.now() + 77;
  CHECK(r.router.next_event_at() == r.now() + 77);
  r.links->events = {{r.links->tokens[0], 0, false, true, false}};
  r.router.on_event_due();
  CHECK(r.net->acknowledged == 1);
  CHECK(r.sent.empty());
  r.links->events = {{r.links->tokens[0], 0, true, false, true}};
  r.router.on_event_due();
  CHECK(r.net->acknowledged == 1);
  REQUIRE(r.sent.size() == 1);
  CHECK(r.sent[0].to == b0);
  CHECK(r.sent[0].body.empty());
  // A tensor without a path of its own uses the pair of its pipeline.
  t.microbatch = 2;
  t.from.pipeline = 5;
  t.path.pairs = 0;
  r.frame_of(a0, b0, t);
  REQUIRE(r.links->started.size() == 2);
  CHECK(r.links->started[1].first_pair == 5);
  CHECK(r.links->started[1].pairs == 1);
}

TEST_CASE("a link that refuses a transfer costs the tensor, and no more than that") {
  routed r{true};
  r.links->refuses = true;
  r.send(a0, b0, 1, 1000);
  CHECK(r.net->acknowledged == 1);
  r.links->refuses = false;
  r.clock->now += 1;
  r.send(a0, b0, 1, 1000);
  CHECK(r.links->started.size() == 1);
  auto t = routed::tensor_of(2, 1000);
  t.path.pairs = 5000;  // more than there may be
  r.frame_of(a0, b0, t, 1000);
  CHECK(r.links->started.size() == 1);
  CHECK(r.net->acknowledged == 2);
}

TEST_CASE("a tensor whose body has another size than it says is dropped") {
  routed r;
  r.frame_of(a0, b0, routed::tensor_of(1, 1000), 999);
  CHECK(r.sent.empty());
  CHECK(r.net->acknowledged == 1);
  r.frame_of(a0, b0, routed::tensor_of(1, 0), 0);  // of no bytes: it is no simulated one
  CHECK(r.count<stripe>() == 1);
}

TEST_CASE("frames that are no tensors take the link's delay, and are acknowledged at once") {
  const message request = tensor_request{};
  {
    routed r;
    r.frame_of(a0, b0, request);
    CHECK(r.sent.size() == 1);
    CHECK(r.net->acknowledged == 1);
  }
  routed r{true};
  r.frame_of(a0, b0, request);
  CHECK(r.links->small == std::vector<std::uint32_t>{1});
  CHECK(r.net->acknowledged == 1);
  CHECK(r.sent.empty());
  r.links->events = {{r.links->tokens[0], 0, true, false, true}};
  r.router.on_event_due();
  REQUIRE(r.sent.size() == 1);
  CHECK(r.sent[0].to == b0);
  CHECK(r.net->acknowledged == 1);
  r.frame_of(a0, a1, request);
  CHECK(r.sent.back().to == a1);
  r.frame_of(a0, controller_address, request);
  CHECK(r.sent.back().to == controller_address);
  r.frame_of(controller_address, b0, request);
  CHECK(r.links->small.size() == 2);
  r.frame_of(b0, b1, request);  // this is no way from one to the other
  CHECK(r.links->small.size() == 2);
  CHECK(r.sent.size() == 3);
  CHECK(r.net->acknowledged == 5);
}

TEST_CASE("stripes make a tensor for a node here, if they come from the sender's gateway") {
  routed r;
  r.stripe_of(b0, a0, 1000);
  REQUIRE(r.sent.size() == 1);
  CHECK(r.sent[0].to == a0);
  CHECK(r.sent[0].body.bytes().size() == 1000);
  CHECK(r.router.traffic().wan_received_bytes == 1000);
  CHECK(r.net->acknowledged == 1);
  r.stripe_of(b0, b1, 1000);           // not for this datacenter
  r.stripe_of(a1, a0, 1000);           // not of that gateway's
  r.stripe_of(dc2, a0, 1000);          // from no node
  r.stripe_of(b0, a0, 1000, dc2 + 1);  // by another gateway
  r.stripe_of(b0, a0, 1000, a1);       // by no gateway
  CHECK(r.sent.size() == 1);
  CHECK(r.net->acknowledged == 6);
  CHECK(r.router.traffic().wan_received_bytes == 1000);
}

TEST_CASE("stripes for a slow node are held back until its queue is short again") {
  routed r;
  constexpr std::uint64_t mega = 1 << 20;
  r.net->full = {a0};
  r.stripe_of(b0, a0, 40 * mega);
  CHECK(r.net->acknowledged == 1);
  r.stripe_of(b0, a0, 40 * mega);  // 80 are queued now
  CHECK(r.net->acknowledged == 1);
  r.stripe_of(b0, a1, mega);  // for another
  CHECK(r.net->acknowledged == 2);
  r.router.on_event_due();
  CHECK(r.net->acknowledged == 2);
  r.net->full.clear();
  r.router.on_event_due();
  CHECK(r.net->acknowledged == 3);
  r.router.on_event_due();
  CHECK(r.net->acknowledged == 3);
  CHECK(r.sent.size() == 3);
}
