#include "actors/gateway/wan_arbiter.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <vector>

using namespace troupe;
using namespace troupe::actors;

namespace {

constexpr time_ns slot = 1'000'000'000;
constexpr std::uint64_t slot_bytes = 1'000'000;
constexpr double slot_gbps = 0.008;  // a slot for slot_bytes

tensor from_pipeline(std::uint32_t p, std::uint64_t bytes = slot_bytes) {
  tensor t;
  t.from = {1, p, 0};
  t.to_pipeline = p, t.to_stage = 1;
  t.bytes = bytes;
  t.share = {p, 1, 1, false, 0};
  return t;
}

tensor in_turn(std::uint32_t p, std::uint32_t turn, std::uint32_t pairs = 2) {
  auto t = from_pipeline(p);
  t.share = {0, pairs, 1, true, turn};
  return t;
}

link_rates rate(double gbps, time_ns delay = 0) {
  link_rates r;
  r.node_gbps = gbps;
  r.delay = delay;
  return r;
}

struct seen {
  time_ns at = 0;
  std::uint32_t token = 0, part = 0;
  bool there = false, left = false;
  bool operator==(const seen&) const = default;
};

/// Runs the arbiter alone until a time, or until no transfer is left.
std::vector<seen> run(wan_arbiter& d, time_ns from, time_ns until = never_ns) {
  std::vector<seen> all;
  for (auto now = from;;) {
    d.look(now);
    while (const auto e = d.take(now)) all.push_back({now, e->token, e->part, e->there, e->left});
    const auto next = d.next(now);
    if (next == never_ns || next > until) return all;
    now = next;
  }
}

std::vector<std::pair<std::uint32_t, time_ns>> arrivals(const std::vector<seen>& all) {
  std::vector<std::pair<std::uint32_t, time_ns>> result;
  for (const auto& s : all)
    if (s.there) result.emplace_back(s.token, s.at);
  return result;
}

using order = std::vector<std::pair<std::uint32_t, time_ns>>;

}  // namespace

TEST_CASE("A tensor takes its bytes over the pair's rate, to the nanosecond") {
  wan_arbiter d;
  REQUIRE(d.offer(5 * slot, from_pipeline(0), rate(slot_gbps), 0));
  CHECK(run(d, 5 * slot) == std::vector<seen>{{6 * slot, 0, 0, true, true}});
  // 96 MiB at 293 Mbit/s and at 5 Gbit/s: the paper's 2.75 s and 0.161 s.
  link_rates r = rate(5);
  r.connection_gbps = 0.293;
  CHECK(r.duration(96 << 20, 1) == 2'748'485'898);
  CHECK(r.duration(96 << 20, 18) == 161'061'274);
}

TEST_CASE("Connections add up until the pair's cap") {
  link_rates r = rate(4);
  r.connection_gbps = 0.5;
  const double bytes = 1e6;  // 8 Mbit: 2 ms at 4 Gbit/s
  CHECK(r.duration(bytes, 1) == 16'000'000);
  CHECK(r.duration(bytes, 4) == 4'000'000);
  CHECK(r.duration(bytes, 8) == 2'000'000);
  CHECK(r.duration(bytes, 16) == 2'000'000);
  CHECK(link_rates{}.duration(bytes, 1) == 0);
  CHECK(rate(1e-300).duration(1e18, 1) == wan_arbiter::longest);
}

TEST_CASE("A pair's tensors queue behind each other, another pair's do not") {
  wan_arbiter d;
  for (std::uint32_t i = 0; i < 3; ++i) REQUIRE(d.offer(0, from_pipeline(0), rate(slot_gbps), i));
  REQUIRE(d.offer(0, from_pipeline(1), rate(slot_gbps), 3));
  CHECK(arrivals(run(d, 0)) == order{{0, slot}, {3, slot}, {1, 2 * slot}, {2, 3 * slot}});
}

TEST_CASE("Over the pairs of a cell a tensor takes its share of the time on each") {
  wan_arbiter d;
  for (const std::uint32_t pairs : {1U, 2U, 4U, 5U}) {
    auto t = from_pipeline(0);
    t.from.lease = pairs;
    t.share.pairs = pairs;
    REQUIRE(d.offer(0, t, rate(slot_gbps), pairs));
  }
  CHECK(arrivals(run(d, 0)) == order{{5, slot / 5}, {4, slot / 4}, {2, slot / 2}, {1, slot}});
}

TEST_CASE("A tensor over several pairs starts when all of them are free") {
  wan_arbiter d;
  REQUIRE(d.offer(0, from_pipeline(1), rate(slot_gbps), 0));
  auto both = from_pipeline(0);
  both.share.pairs = 2;
  REQUIRE(d.offer(slot / 4, both, rate(slot_gbps), 1));
  CHECK(arrivals(run(d, slot / 4)) == order{{0, slot}, {1, 3 * slot / 2}});
}

TEST_CASE("The delay is added, and the pair is free before it has passed") {
  wan_arbiter d;
  for (std::uint32_t i = 0; i < 2; ++i)
    REQUIRE(d.offer(0, from_pipeline(0), rate(slot_gbps, 10 * slot), i));
  CHECK(run(d, 0) == std::vector<seen>{{slot, 0, 1, false, true},
                                       {2 * slot, 1, 1, false, true},
                                       {11 * slot, 0, 0, true, false},
                                       {12 * slot, 1, 0, true, false}});
}

TEST_CASE("Parts are there one after the other, the last when the whole is") {
  wan_arbiter d;
  REQUIRE(d.offer(0, from_pipeline(0), rate(slot_gbps, 1000), 0, 4));
  order parts;
  for (const auto& s : run(d, 0))
    if (s.there) parts.emplace_back(s.part, s.at);
  CHECK(parts == order{{0, slot / 4 + 1000},
                       {1, slot / 2 + 1000},
                       {2, 3 * slot / 4 + 1000},
                       {3, slot + 1000}});
}

TEST_CASE("In turn: one transfer of a cell at a time, the smallest turn of those that wait first") {
  wan_arbiter d;
  REQUIRE(d.offer(0, in_turn(0, 9), rate(slot_gbps), 0));  // the link is idle
  REQUIRE(d.offer(1, in_turn(1, 7), rate(slot_gbps), 1));
  REQUIRE(d.offer(2, in_turn(2, 5), rate(slot_gbps), 2));
  REQUIRE(d.offer(3, in_turn(3, 6), rate(slot_gbps), 3));
  CHECK(arrivals(run(d, 3)) == order{{0, slot / 2}, {2, slot}, {3, 3 * slot / 2}, {1, 2 * slot}});
}

TEST_CASE("In turn: other cells, other hops and the other direction do not wait") {
  wan_arbiter d;
  REQUIRE(d.offer(0, in_turn(0, 1), rate(slot_gbps), 0));
  auto other_cell = in_turn(2, 2);
  other_cell.share.first_pair = 2;
  REQUIRE(d.offer(0, other_cell, rate(slot_gbps), 1));
  auto other_hop = in_turn(0, 3);
  other_hop.from.stage = 4, other_hop.to_stage = 5;
  REQUIRE(d.offer(0, other_hop, rate(slot_gbps), 2));
  auto back = in_turn(0, 4);
  back.from.stage = 1, back.to_stage = 0;
  REQUIRE(d.offer(0, back, rate(slot_gbps), 3));
  for (const auto& [token, at] : arrivals(run(d, 0))) CHECK(at == slot / 2);
}

TEST_CASE("In turn: an earlier iteration goes before a later one, whatever the turns") {
  wan_arbiter d;
  REQUIRE(d.offer(0, in_turn(0, 0), rate(slot_gbps), 0));
  auto next = in_turn(1, 0);
  next.iteration = 1;
  REQUIRE(d.offer(0, next, rate(slot_gbps), 1));
  REQUIRE(d.offer(0, in_turn(2, 8), rate(slot_gbps), 2));
  CHECK(arrivals(run(d, 0)) == order{{0, slot / 2}, {2, slot}, {1, 3 * slot / 2}});
}

TEST_CASE("In turn: a stage's own tensors stay in order, even if it numbers them backwards") {
  wan_arbiter d;
  REQUIRE(d.offer(0, in_turn(1, 0), rate(slot_gbps), 9));
  for (std::uint32_t i = 0; i < 4; ++i) REQUIRE(d.offer(0, in_turn(0, 10 - i), rate(slot_gbps), i));
  std::vector<std::uint32_t> tokens;
  for (const auto& [token, at] : arrivals(run(d, 0))) tokens.push_back(token);
  CHECK(tokens == std::vector<std::uint32_t>{9, 0, 1, 2, 3});
}

TEST_CASE("In turn: after it has started anew a training's turns count again") {
  wan_arbiter d;
  auto late = in_turn(0, 50);
  late.iteration = 7;
  REQUIRE(d.offer(0, late, rate(slot_gbps), 0));
  run(d, 0);
  REQUIRE(d.offer(9 * slot, in_turn(2, 0), rate(slot_gbps), 0));
  REQUIRE(d.offer(9 * slot, in_turn(1, 4), rate(slot_gbps), 1));
  REQUIRE(d.offer(9 * slot, in_turn(0, 3), rate(slot_gbps), 2));
  const auto all = arrivals(run(d, 9 * slot));
  REQUIRE(all.size() == 3);
  CHECK(all[1].first == 2);
}

TEST_CASE("With rounds, those that come at one instant are chosen from together") {
  wan_arbiter d{3};
  const auto come = [&](time_ns at, std::uint32_t p, std::uint32_t turn, std::uint32_t token) {
    REQUIRE(d.offer(at, in_turn(p, turn), rate(slot_gbps), token));
    CHECK(d.next(at) == at);
    d.look(at);
    CHECK_FALSE(d.take(at));
  };
  come(0, 1, 5, 0);
  come(0, 0, 4, 1);
  CHECK(arrivals(run(d, 0)) == order{{1, slot / 2}, {0, slot}});
}

TEST_CASE("Of an open-ended link a transfer takes until the caller says that it has left") {
  wan_arbiter d;
  link_rates open;
  open.open_ended = true;
  REQUIRE(d.offer(0, in_turn(0, 1), open, 0, 2));
  REQUIRE(d.offer(0, in_turn(1, 2), open, 1));
  CHECK(run(d, 0) == std::vector<seen>{{0, 0, 0, true, false}, {0, 0, 1, true, false}});
  CHECK(d.next(5) == never_ns);
  d.ended(7, 0);
  CHECK(run(d, 7) == std::vector<seen>{{7, 1, 0, true, false}});
}

TEST_CASE("Jitter delays by no more than its limit, and nothing overtakes on its pair") {
  wan_arbiter d{0, random_source{7}};
  auto r = rate(slot_gbps, 1000);
  r.jitter = 5 * slot;
  for (std::uint32_t i = 0; i < 200; ++i) REQUIRE(d.offer(0, from_pipeline(0), r, i));
  const auto all = arrivals(run(d, 0));
  REQUIRE(all.size() == 200);
  time_ns most = 0;
  for (std::uint32_t i = 0; i < 200; ++i) {
    CHECK(all[i].first == i);
    const auto late = all[i].second - (i + 1) * slot - 1000;
    CHECK(late >= 0);
    CHECK(late <= 5 * slot);
    most = std::max(most, late);
  }
  CHECK(most > slot);
}

TEST_CASE("Shares that make no sense are refused, and nothing is kept of them") {
  wan_arbiter d;
  auto t = from_pipeline(0);
  t.share.pairs = ~0U;
  CHECK_FALSE(d.offer(0, t, rate(1), 0));
  t.share = {~0U, 1, 1, false, 0};
  CHECK_FALSE(d.offer(0, t, rate(1), 0));
  t.share = {wan_arbiter::max_pairs, 1, 1, true, 0};
  CHECK_FALSE(d.offer(0, t, rate(1), 0));
  CHECK_FALSE(d.offer(0, from_pipeline(0), rate(1), 0, 0));
  CHECK_FALSE(d.offer(0, from_pipeline(0), rate(1), 0, ~0U));
  CHECK(d.hops() == 0);
  t = from_pipeline(0, ~std::uint64_t{0});
  t.share.connections = ~0U;
  std::uint32_t taken = 0;
  while (taken < 10 && d.offer(0, t, rate(1e-9), taken)) ++taken;
  CHECK(taken == 2);  // more than the longest queue of time is not accepted
  for (std::uint32_t i = 0; i < 2 * wan_arbiter::max_hops; ++i) {
    t = from_pipeline(0);
    t.from.lease = i + 10;
    d.offer(0, t, rate(1), 100 + i);
  }
  CHECK(d.hops() == wan_arbiter::max_hops);
}

TEST_CASE("What is no longer used is forgotten, what is under way is not") {
  wan_arbiter d;
  REQUIRE(d.offer(0, from_pipeline(0), rate(slot_gbps), 0));
  auto other = from_pipeline(0);
  other.from.lease = 2;
  REQUIRE(d.offer(0, other, rate(1e6), 1));
  run(d, 0, slot / 2);
  CHECK(d.hops() == 2);
  d.forget(slot);
  CHECK(d.hops() == 1);
  CHECK(arrivals(run(d, slot)) == order{{0, slot}});
  d.forget(2 * slot);
  CHECK(d.hops() == 0);
}

TEST_CASE("Any load: every tensor is there once, in its flow's order, and no pair beats its rate") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    random_source random{seed};
    wan_arbiter d{static_cast<std::uint32_t>(seed % 4)};
    std::vector<seen> all;
    std::vector<tensor> sent;
    time_ns now = 0;
    double bytes = 0;
    constexpr std::uint32_t tensors = 300;
    for (std::uint32_t i = 0; i < tensors; ++i) {
      now += static_cast<time_ns>(random.below(slot));
      for (const auto& s : run(d, now, now)) all.push_back(s);
      const auto p = static_cast<std::uint32_t>(random.below(4));
      auto t = in_turn(p, static_cast<std::uint32_t>(random.below(50)), 4);
      t.bytes = random.below(3 * slot_bytes);
      t.microbatch = i;
      bytes += static_cast<double>(t.bytes);
      REQUIRE(d.offer(now, t, rate(slot_gbps, 1000), i,
                      1 + static_cast<std::uint32_t>(random.below(5))));
      sent.push_back(t);
    }
    for (const auto& s : run(d, now)) all.push_back(s);
    std::map<std::uint32_t, std::uint32_t> last;  // by pipeline
    std::map<std::uint32_t, int> left;
    std::uint32_t whole = 0;
    time_ns end = 0;
    for (const auto& s : all) {
      left[s.token] += s.left ? 1 : 0;
      if (!s.there || s.part > 0) continue;
      const auto p = sent[s.token].from.pipeline;
      CHECK((!last.contains(p) || last[p] < s.token));
      last[p] = s.token;
      ++whole;
      end = std::max(end, s.at);
    }
    CHECK(whole == tensors);
    for (const auto& [token, times] : left) CHECK(times == 1);
    CHECK(d.next(end) == never_ns);
  }
}
