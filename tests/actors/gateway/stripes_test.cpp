#include "actors/gateway/stripe_reassembler.hpp"
#include "actors/gateway/striping.hpp"

#include <catch2/catch.hpp>

#include <algorithm>

#include "messages/base/random.hpp"
#include "runtime/host/transport.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

constexpr address a_gateway = 2;
constexpr time_ns second = 1'000'000'000;

payload bytes_of(std::uint64_t seed, std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::byte>((i + seed) * 0x9e3779b9U >> 13);
  return payload{std::move(bytes)};
}

bool same(const payload& a, const payload& b) {
  return std::ranges::equal(a.bytes(), b.bytes());
}

struct cut_tensor {
  std::vector<stripe> stripes;
  std::vector<payload> bodies;
};

cut_tensor cut(std::uint64_t number, const payload& body, std::uint32_t count) {
  cut_tensor result;
  const cut_body how{body.bytes().size(), count};
  for (std::uint32_t i = 0; i < count; ++i) {
    stripe s;
    s.epoch = 1, s.transfer = number, s.index = i, s.count = count, s.offset = how.begin(i);
    s.from = 9, s.to = 5;
    s.what.from = {1, 0, 0};
    s.what.to_stage = 1;
    s.what.microbatch = static_cast<std::uint32_t>(number);
    s.what.bytes = body.bytes().size();
    result.stripes.push_back(s);
    result.bodies.push_back(how.piece(body, i));
  }
  return result;
}

std::vector<stripe_reassembler::whole> add_all(stripe_reassembler& g, const cut_tensor& c,
                                               time_ns now = 0) {
  std::vector<stripe_reassembler::whole> out;
  for (std::size_t i = 0; i < c.stripes.size(); ++i)
    if (auto w = g.add(now, a_gateway, c.stripes[i], c.bodies[i])) out.push_back(std::move(*w));
  return out;
}

}  // namespace

TEST_CASE("a body of any size is cut without gaps and reassembled from its stripes in any order") {
  random_source random{3};
  for (const std::size_t size : {0UL, 1UL, 2UL, 7UL, 4096UL, 1'000'003UL})
    for (const std::uint32_t count : {1U, 2U, 3U, 16U, 100U}) {
      const auto body = bytes_of(size, size);
      auto c = cut(0, body, count);
      for (std::size_t i = count; i > 1; --i) {
        const auto j = random.below(i);
        std::swap(c.stripes[i - 1], c.stripes[j]);
        std::swap(c.bodies[i - 1], c.bodies[j]);
      }
      stripe_reassembler g;
      const auto out = add_all(g, c);
      REQUIRE(out.size() == 1);
      CHECK(same(out[0].body, body));
      CHECK(out[0].to == 5);
      CHECK(g.held_bytes() == 0);
    }
}

TEST_CASE("a tensor is passed on as soon as it is complete, in any order of tensors") {
  stripe_reassembler g;
  std::vector<cut_tensor> all;
  for (std::uint64_t n = 0; n < 4; ++n) all.push_back(cut(n, bytes_of(n, 1000), 3));
  for (const std::uint32_t n : {2U, 1U, 0U, 3U}) {
    const auto out = add_all(g, all[n]);
    REQUIRE(out.size() == 1);
    CHECK(out[0].what.microbatch == n);
  }
  CHECK(g.held_bytes() == 0);
}

TEST_CASE("an incomplete tensor blocks no other, and expires when no more stripes arrive") {
  stripe_reassembler g;
  auto torn = cut(0, bytes_of(1, 900), 3);
  const auto stripe = torn.stripes.back();
  const auto body = torn.bodies.back();
  torn.stripes.pop_back();
  torn.bodies.pop_back();
  CHECK(add_all(g, torn, 0).empty());
  CHECK(add_all(g, cut(1, bytes_of(2, 900), 3), second).size() == 1);
  g.on_tick(4 * second);
  CHECK(g.held_bytes() == 600);
  g.on_tick(6 * second);
  CHECK(g.held_bytes() == 0);
  CHECK(g.count().expired == 1);
  CHECK_FALSE(g.add(7 * second, a_gateway, stripe, body));  // too late
}

TEST_CASE("a tensor whose stripes arrive slowly does not expire") {
  stripe_reassembler g;
  const auto body = bytes_of(1, 1000);
  const auto slow = cut(0, body, 10);
  for (std::size_t i = 0; i < 10; ++i) {
    const auto now = static_cast<time_ns>(i) * 3 * second;
    g.on_tick(now);
    const auto out = g.add(now, a_gateway, slow.stripes[i], slow.bodies[i]);
    REQUIRE(out.has_value() == (i == 9));
    if (out) CHECK(same(out->body, body));
  }
}

TEST_CASE("a restarted flow continues at once, with a larger or a smaller epoch") {
  stripe_reassembler g;
  auto torn = cut(0, bytes_of(1, 100), 2);
  torn.stripes.pop_back();
  torn.bodies.pop_back();
  CHECK(add_all(g, torn).empty());
  for (const std::uint64_t epoch : {2ULL, 0ULL}) {
    auto anew = cut(0, bytes_of(2, 100), 2);
    for (auto& s : anew.stripes) s.epoch = epoch;
    const auto out = add_all(g, anew);
    REQUIRE(out.size() == 1);
    CHECK(same(out[0].body, bytes_of(2, 100)));
  }
}

TEST_CASE("a gateway that starts in the middle of a flow accepts it at any transfer number") {
  for (const std::uint64_t at : {1ULL, 2047ULL, 5000ULL, 1'000'000ULL}) {
    INFO("from " << at);
    stripe_reassembler g;
    for (std::uint64_t n = at; n < at + 5000; ++n)
      REQUIRE(add_all(g, cut(n, bytes_of(3, 8), 1)).size() == 1);
    CHECK(g.count().refused == 0);
  }
}

TEST_CASE("inconsistent stripes are refused") {
  const auto body = bytes_of(1, 100);
  const auto refused = [&](auto&& spoil) {
    auto c = cut(0, body, 2);
    spoil(c);
    stripe_reassembler g;
    CHECK(add_all(g, c).empty());
    g.on_tick(100 * second);
    CHECK(g.held_bytes() == 0);
    CHECK(g.count().tensors == 0);
    CHECK(g.count().refused <= 2);
    return g.count().refused;
  };
  CHECK(refused([](cut_tensor& c) { c.stripes[1].to = 6; }) == 1);
  CHECK(refused([](cut_tensor& c) {
          for (auto& s : c.stripes) s.count = 0;
        }) == 2);
  refused([](cut_tensor& c) { c.stripes[1].offset = 49; });  // overlaps the first
  refused([](cut_tensor& c) { c.stripes[1].offset = 51; });  // ends beyond the body
  refused([](cut_tensor& c) { c.stripes[1].offset = ~std::uint64_t{0} - 10; });  // wraps
  refused([](cut_tensor& c) { c.stripes[1].index = 2; });
  refused([](cut_tensor& c) { c.stripes[1].count = 3; });
  refused([](cut_tensor& c) { c.stripes[1].index = 0; });  // twice the same
  refused([](cut_tensor& c) { c.stripes[1].to = 6; });
  refused([](cut_tensor& c) { c.stripes[1].what.bytes = 101; });
  refused([](cut_tensor& c) { c.bodies[1] = {}; });  // a gap
  refused([](cut_tensor& c) {
    for (auto& s : c.stripes) s.what.bytes = 1'000'000'000'000, s.count = ~0U;
  });
  refused([](cut_tensor& c) {
    for (auto& s : c.stripes) s.count = 0;
  });
}

TEST_CASE("with random stripes, memory stays within its limits and incomplete tensors expire") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    random_source random{seed};
    stripe_reassembler::limits l;
    l.bytes = 100'000;
    l.stripes = 500;
    l.flows = 20;
    l.transfers = 8;
    stripe_reassembler g{l};
    const auto body = bytes_of(seed, 5000);
    time_ns now = 0;
    for (int i = 0; i < 20'000; ++i) {
      now += static_cast<time_ns>(random.below(second / 100));
      auto c = cut(random.below(12), body, 1 + static_cast<std::uint32_t>(random.below(6)));
      const auto which = random.below(c.stripes.size());
      auto s = c.stripes[which];
      s.what.from.pipeline = static_cast<std::uint32_t>(random.below(40));
      if (random.chance(0.05)) s.epoch = random.below(4);
      if (random.chance(0.05)) s.offset = random.next();
      if (random.chance(0.05)) s.count = static_cast<std::uint32_t>(random.next());
      if (random.chance(0.05)) s.index = static_cast<std::uint32_t>(random.next());
      if (random.chance(0.05)) s.transfer = random.next();
      if (random.chance(0.05)) s.what.bytes = random.next();
      if (const auto w = g.add(now, a_gateway, s, c.bodies[which])) CHECK(same(w->body, body));
      CHECK(g.held_bytes() <= l.bytes + 5000);
      if (i % 100 == 0) g.on_tick(now);
    }
    g.on_tick(now + 20 * second);
    CHECK(g.held_bytes() == 0);
    CHECK(g.count().tensors > 0);
  }
}

TEST_CASE("a tensor uses a lane for each connection of its pairs, and stripes of bounded size") {
  const auto layout = [](std::uint64_t bytes, std::uint32_t first_pair, std::uint32_t pairs,
                         std::uint32_t connections, std::uint32_t max_parts = 1000) {
    tensor t;
    t.bytes = bytes;
    t.path.first_pair = first_pair;
    t.path.pairs = pairs;
    t.path.connections = connections;
    const auto l = layout_of(t, max_parts);
    return std::tuple{l.first_lane, l.lanes, l.parts};
  };
  using l = stripe_layout;
  const auto first = runtime::tensor_lane;
  CHECK(layout(64 << 20, 0, 1, 1) == std::tuple{first, 1U, 128U});
  CHECK(layout(64 << 20, 3, 2, 4) == std::tuple{first + 12, 8U, 16U});
  CHECK(layout(64 << 20, 3, 2, 4, 5) == std::tuple{first + 12, 8U, 5U});
  CHECK(layout(64 << 20, 0, 1, 0) == std::tuple{first, 1U, 128U});
  CHECK(layout(3 * l::min_stripe_bytes, 0, 2, 4) == std::tuple{first, 3U, 1U});
  CHECK(layout(1, 0, 2, 4) == std::tuple{first, 1U, 1U});
  CHECK(layout(std::uint64_t{1} << 40, 0, 4000, 1) == std::tuple{first, l::max_lanes, 1000U});
  CHECK(layout(8 * l::max_stripe_bytes, 0, 4, 1) == std::tuple{first, 4U, 2U});
}

TEST_CASE("a flow's tensors are numbered consecutively, and from 0 in a later epoch") {
  stripe_numbers numbers;
  tensor t, other;
  t.from = {1, 0, 0};
  other.from = {1, 0, 1};
  for (std::uint64_t n = 0; n < 3; ++n) {
    const auto got = numbers.next(time_ns(100 + n), t);
    CHECK(got.epoch == 101);
    CHECK(got.transfer == n);
  }
  CHECK(numbers.next(200, other).transfer == 0);
  numbers.forget(102);
  CHECK(numbers.next(210, t).transfer == 3);
  numbers.forget(205);
  CHECK(numbers.next(300, t).transfer == 4);
  CHECK(numbers.next(300, other).epoch == 301);
  CHECK(numbers.next(300, other).transfer == 1);
}

TEST_CASE("held stripes are bounded by number and by bytes, and expiry makes room") {
  for (const bool by_bytes : {false, true}) {
    stripe_reassembler::limits l;
    if (by_bytes)
      l.bytes = 150;
    else
      l.stripes = 3;
    stripe_reassembler g{l};
    std::vector<cut_tensor> all;
    for (std::uint64_t n = 0; n < 6; ++n) all.push_back(cut(n, bytes_of(n, 100), 2));
    const auto add = [&](std::size_t tensor, std::size_t i) {
      const auto before = g.count().refused;
      const bool whole =
          g.add(0, a_gateway, all[tensor].stripes[i], all[tensor].bodies[i]).has_value();
      return std::pair{g.count().refused == before, whole};
    };
    for (std::size_t n = 0; n < 3; ++n) CHECK(add(n, 0) == std::pair{true, false});
    CHECK(g.held_bytes() == 150);
    CHECK(add(3, 0) == std::pair{false, false});
    g.on_tick(10 * second);
    CHECK(g.count().expired == 3);
    CHECK(g.held_bytes() == 0);
    for (std::size_t n = 3; n < 5; ++n) CHECK(add(n, 0) == std::pair{true, false});
    CHECK(add(3, 1) == std::pair{true, true});
    CHECK(g.held_bytes() == 50);
    CHECK(add(5, 0) == std::pair{true, false});
    CHECK(add(3, 0) == std::pair{true, false});  // it has been forgotten
    CHECK(add(5, 1) == std::pair{false, false});
  }
}
