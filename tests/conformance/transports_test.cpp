#include <algorithm>

#include "conformance/networks.hpp"

using namespace troupe;
using namespace troupe::runtime;
using namespace troupe::runtime::conformance;
using runtime::test::number_of;
using runtime::test::numbered;

namespace {

std::unique_ptr<network> any_network() {
  const auto kind = GENERATE(as<std::string>{}, "simulated", "tcp", "ipc");
  CAPTURE(kind);
  return make_network(kind);
}

void start_all(network& n) {
  for (const auto a : {controller, dc1, dc2, a0, a1, b0}) n.start(a);
}

payload pattern(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 31 >> 3);
  return payload{std::move(bytes)};
}

bool same(const payload& a, const payload& b) {
  return std::ranges::equal(a.bytes(), b.bytes());
}

}  // namespace

TEST_CASE("a frame goes unchanged to the next hop towards its address") {
  const auto n = any_network();
  start_all(*n);
  const auto sent = numbered(a0, b0, 7, pattern(1000));
  address here = a0;
  for (const auto next : {dc1, dc2, b0}) {
    REQUIRE(n->eventually([&] { return n->net(here).send(b0, sent); }));
    REQUIRE(n->arrives(next, 1));
    const auto got = n->take(next);
    REQUIRE(got.size() == 1);
    REQUIRE(same(got[0].header, sent.header));
    REQUIRE(same(got[0].body, sent.body));
    here = next;
  }
}

namespace {

frame a_tensor(address from, address to, std::uint64_t iteration, payload body) {
  tensor t;
  t.from = {1, 0, 0};
  t.to_stage = 1;
  t.iteration = iteration;
  t.bytes = body.bytes().size();
  return encode(from, to, t, std::move(body));
}

std::uint64_t iteration_of(const frame& f) {
  const auto m = decode(f.header.bytes());
  REQUIRE(m);
  return std::get<tensor>(m->second).iteration;
}

}  // namespace

TEST_CASE(
    "nodes of one datacenter exchange tensors directly, and other frames through their gateway") {
  const auto n = any_network();
  start_all(*n);
  constexpr std::uint64_t tensors = 50;
  for (const auto& [from, to] : {std::pair{a0, a1}, {a1, a0}}) {
    for (std::uint64_t i = 0; i < tensors; ++i)
      REQUIRE(n->eventually([&, from = from, to = to] {
        return n->net(from).send(to, a_tensor(from, to, i, pattern(100'000 + i)), tensor_lane);
      }));
    REQUIRE(n->arrives(to, tensors));
    const auto got = n->take(to);
    REQUIRE(got.size() == tensors);
    for (std::uint64_t i = 0; i < tensors; ++i) {
      REQUIRE(iteration_of(got[i]) == i);
      REQUIRE(same(got[i].body, pattern(100'000 + i)));
    }
  }
  for (const auto other : {controller, dc1, dc2, b0}) REQUIRE(n->received(other) == 0);

  REQUIRE(n->net(a0).send(a1, numbered(a0, a1, 7)));
  REQUIRE(n->net(a0).send(a1, a_tensor(a0, a1, 8, pattern(10)), relayed_tensor_lane));
  REQUIRE(n->arrives(dc1, 2));
  REQUIRE(n->received(a1) == 0);
}

namespace {

frame a_block(address from, address to, std::uint32_t index, payload body) {
  prefill_block b;
  b.index = index;
  b.bytes = body.bytes().size();
  return encode(from, to, b, std::move(body));
}

std::uint32_t index_of(const frame& f) {
  const auto m = decode(f.header.bytes());
  REQUIRE(m);
  return std::get<prefill_block>(m->second).index;
}

}  // namespace

TEST_CASE("blocks of prefills go through the gateway, each once and in order") {
  const auto n = any_network();
  start_all(*n);
  constexpr std::uint32_t blocks = 50;
  address here = a0;
  std::vector<frame> all;
  for (std::uint32_t i = 0; i < blocks; ++i) all.push_back(a_block(a0, a1, i, pattern(20'000 + i)));
  for (const auto next : {dc1, a1}) {
    for (const auto& f : all)
      REQUIRE(n->eventually([&] { return n->net(here).send(a1, f, prefill_lane); }));
    REQUIRE(n->arrives(next, blocks));
    all = n->take(next);
    REQUIRE(all.size() == blocks);
    for (std::uint32_t i = 0; i < blocks; ++i) {
      REQUIRE(index_of(all[i]) == i);
      REQUIRE(same(all[i].body, pattern(20'000 + i)));
    }
    here = next;
  }
}

TEST_CASE("a gateway that handles nothing still gets a node's small frames after many blocks") {
  const auto n = any_network();
  n->start(controller);
  n->start(dc1, false);
  n->start(a0);
  std::uint32_t accepted = 0;
  const auto fill = [&] {
    while (accepted < 10 * credit_frames &&
           n->net(a0).send(a1, a_block(a0, a1, accepted, pattern(10)), prefill_lane))
      ++accepted;
    return accepted >= credit_frames;
  };
  REQUIRE(n->eventually(fill));
  REQUIRE_FALSE(n->net(a0).send(a1, a_block(a0, a1, 0, pattern(10)), prefill_lane));
  REQUIRE(n->net(a0).send(dc1, numbered(a0, dc1, 7)));
  REQUIRE(n->net(a0).send(a1, a_tensor(a0, a1, 8, pattern(10)), relayed_tensor_lane));
  std::size_t others = 0;
  REQUIRE(n->eventually([&] {
    for (const auto& f : n->take(dc1))
      others += peek(f.header.bytes())->type == type_id<prefill_block> ? 0 : 1;
    return others == 2;
  }));
}

TEST_CASE("tensors for a node that died go through the gateway, and directly once it is back") {
  const auto n = any_network();
  start_all(*n);
  const auto send = [&] { n->net(a0).send(a1, a_tensor(a0, a1, 1, pattern(1000)), tensor_lane); };
  send();
  REQUIRE(n->arrives(a1, 1));
  n->stop(a1);
  REQUIRE(n->eventually([&] {
    send();
    return n->received(dc1) > 0;
  }));
  n->start(a1);
  REQUIRE(n->eventually([&] {
    send();
    return n->received(a1) > 0;
  }));
}

TEST_CASE("a node that handles no tensors is sent exactly its credit") {
  const auto n = any_network();
  for (const auto a : {controller, dc1, a0}) n->start(a);
  n->start(a1, false);
  std::uint64_t accepted = 0;
  const auto fill = [&] {
    while (accepted < 10 * credit_frames &&
           n->net(a0).send(a1, a_tensor(a0, a1, accepted, pattern(10)), tensor_lane))
      ++accepted;
    return accepted >= credit_frames;
  };
  REQUIRE(n->eventually(fill));
  REQUIRE_FALSE(n->net(a0).send(a1, a_tensor(a0, a1, 0, pattern(10)), tensor_lane));
  REQUIRE(accepted == credit_frames);
  std::uint64_t seen = 0;
  REQUIRE(n->eventually([&] {
    for (const auto& f : n->take(a1)) {
      REQUIRE(iteration_of(f) == seen++);
      n->net(a1).handled(f);
    }
    return seen == accepted;
  }));
  REQUIRE(n->received(dc1) == 0);
  REQUIRE(n->eventually(
      [&] { return n->net(a0).send(a1, a_tensor(a0, a1, seen, pattern(10)), tensor_lane); }));
}

TEST_CASE("between gateways, each lane's frames all arrive in order, in both directions") {
  const auto n = any_network();
  start_all(*n);
  constexpr std::uint64_t frames = 1000;
  constexpr std::uint32_t lanes = 6;
  for (const auto& [from, to] : {std::pair{dc1, dc2}, {dc2, dc1}}) {
    std::vector<std::vector<std::uint64_t>> seen(lanes);
    std::size_t all = 0;
    const auto collect = [&, to = to] {
      for (const auto& f : n->take(to)) {
        const auto number = number_of(f);
        seen[number % lanes].push_back(number);
        ++all;
      }
      return all >= frames;
    };
    for (std::uint64_t i = 0; i < frames; ++i) {
      REQUIRE(n->eventually([&, from = from, to = to] {
        collect();
        return n->net(from).send(to, numbered(from, to, i, pattern(i % 3 == 0 ? 50'000 : 0)),
                                 static_cast<std::uint32_t>(i % lanes));
      }));
    }
    REQUIRE(n->eventually(collect));
    REQUIRE(all == frames);
    if (!n->is_simulated())  // there a short frame may overtake a long one
      for (const auto& lane : seen) REQUIRE(std::ranges::is_sorted(lane));
  }
}

TEST_CASE("either of two gateways can restart, and they reach each other again") {
  const auto n = any_network();
  start_all(*n);
  for (const auto which : {dc1, dc2, dc1}) {
    n->stop(which);
    n->start(which);
    for (const auto& [from, to] : {std::pair{dc1, dc2}, {dc2, dc1}}) {
      n->take(to);
      REQUIRE(n->eventually([&, from = from, to = to] {
        n->net(from).send(to, numbered(from, to, 1), 2);
        return n->received(to) > 0;
      }));
    }
  }
}

TEST_CASE("a received frame can be forwarded as it is") {
  const auto n = any_network();
  start_all(*n);
  REQUIRE(n->net(controller).send(a1, numbered(controller, a1, 1, pattern(100'000))));
  REQUIRE(n->arrives(dc1, 1));
  REQUIRE(n->net(dc1).send(a1, n->take(dc1)[0]));
  REQUIRE(n->arrives(a1, 1));
  REQUIRE(same(n->take(a1)[0].body, pattern(100'000)));
}

TEST_CASE("frames of equal size between two hosts arrive once each, in order") {
  const auto n = any_network();
  start_all(*n);
  constexpr std::uint64_t frames = 2000;
  std::vector<std::uint64_t> seen;
  const auto collect = [&] {
    for (const auto& f : n->take(dc1)) seen.push_back(number_of(f));
  };
  for (std::uint64_t i = 0; i < frames; ++i) {
    REQUIRE(n->eventually([&] { return n->net(a0).send(dc1, numbered(a0, dc1, i)); }));
    collect();
  }
  REQUIRE(n->eventually([&] {
    collect();
    return seen.size() >= frames;
  }));
  REQUIRE(seen.size() == frames);
  REQUIRE(std::ranges::is_sorted(seen));
}

TEST_CASE("empty and large bodies arrive unchanged") {
  const auto n = any_network();
  start_all(*n);
  const auto size = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{8} << 20);
  REQUIRE(n->net(dc1).send(controller, numbered(dc1, controller, 1, pattern(size))));
  REQUIRE(n->arrives(controller, 1));
  REQUIRE(same(n->take(controller)[0].body, pattern(size)));
}

TEST_CASE("a frame to an absent host is dropped without harm") {
  const auto n = any_network();
  n->start(controller);
  n->start(dc1);
  n->net(controller).send(b0, numbered(controller, b0, 1));
  n->net(controller).send(a_client + 7, numbered(controller, a_client + 7, 1));
  REQUIRE(n->net(dc1).send(controller, numbered(dc1, controller, 2)));
  REQUIRE(n->arrives(controller, 1));
  REQUIRE(number_of(n->take(controller)[0]) == 2);
}

TEST_CASE("a host that handles no frames is sent exactly its credit") {
  const auto n = any_network();
  n->start(controller, false);
  n->start(dc1);
  std::uint64_t accepted = 0;
  const auto fill = [&] {
    while (accepted < 10 * credit_frames &&
           n->net(dc1).send(controller, numbered(dc1, controller, accepted)))
      ++accepted;
    return accepted >= credit_frames;
  };
  REQUIRE(n->eventually(fill));
  REQUIRE_FALSE(n->net(dc1).send(controller, numbered(dc1, controller, 0)));
  REQUIRE(accepted == credit_frames);

  std::uint64_t seen = 0;
  const auto handle = [&] {
    for (const auto& f : n->take(controller)) {
      REQUIRE(number_of(f) == seen++);
      n->net(controller).handled(f);
    }
    return seen == accepted;
  };
  REQUIRE(n->eventually(handle));
  REQUIRE(
      n->eventually([&] { return n->net(dc1).send(controller, numbered(dc1, controller, seen)); }));
  ++accepted;
  REQUIRE(n->eventually(handle));
}

TEST_CASE("a host that died and restarted gets frames again without any action of its peers") {
  const auto n = any_network();
  start_all(*n);
  const auto which = GENERATE(controller, dc1, a0);
  const auto other = which == dc1 ? a0 : dc1;
  n->stop(which);
  n->start(which);
  REQUIRE(n->eventually([&] {
    n->net(other).send(which, numbered(other, which, 1));
    return n->received(which) > 0;
  }));
  REQUIRE(n->eventually([&] {
    n->net(which).send(other, numbered(which, other, 2));
    return n->received(other) > 0;
  }));
  REQUIRE(number_of(n->take(other)[0]) == 2);
}

TEST_CASE("a client exchanges frames with the controller under the address that it was given") {
  const auto n = any_network();
  n->start(controller);
  n->start(a_client);
  REQUIRE(n->net(a_client).self() == a_client);
  REQUIRE(n->net(a_client).send(controller, numbered(a_client, controller, 1)));
  REQUIRE(n->arrives(controller, 1));
  const auto from = peek(n->take(controller)[0].header.bytes())->from;
  REQUIRE(n->net(controller).send(from, numbered(controller, from, 2)));
  REQUIRE(n->arrives(a_client, 1));
}
