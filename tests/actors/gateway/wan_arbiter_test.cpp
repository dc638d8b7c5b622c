#include "actors/gateway/wan_arbiter.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "runtime/virtual/paced_links.hpp"

using namespace troupe;
using namespace troupe::actors;
using runtime::link_pacing;
using runtime::link_rates;
using runtime::paced_links;

namespace {

constexpr time_ns slot = 1'000'000'000;
constexpr std::uint64_t slot_bytes = 1'000'000;
constexpr double slot_gbps = 0.008;  // a slot for slot_bytes

tensor from_pipeline(std::uint32_t p, std::uint64_t bytes = slot_bytes) {
  tensor t;
  t.from = {1, p, 0};
  t.to_pipeline = p, t.to_stage = 1;
  t.bytes = bytes;
  t.path = {p, 1, 1, false, 0};
  return t;
}

tensor serialized(std::uint32_t p, std::uint32_t rank, std::uint32_t pairs = 2) {
  auto t = from_pipeline(p);
  t.path = {0, pairs, 1, true, rank};
  return t;
}

link_rates rate(double gbps, time_ns delay_ns = 0) {
  link_rates r;
  r.node_gbps = gbps;
  r.delay_ns = delay_ns;
  return r;
}

/// An arbiter and the link that its transfers take, joined as a gateway joins them.
struct paced_wan {
  explicit paced_wan(link_rates r = rate(slot_gbps), std::uint32_t rounds = 0)
      : arbiter{rounds}, links{{r}, random_source{7}} {}

  bool offer(time_ns now, const tensor& t, std::uint32_t token, std::uint32_t parts = 1) {
    if (offered.size() <= token) offered.resize(token + 1);
    offered[token] = {0,
                      t.from.lease,
                      t.from.stage,
                      t.to_stage,
                      t.path.first_pair,
                      t.path.pairs,
                      t.path.connections,
                      static_cast<double>(t.bytes),
                      parts};
    return arbiter.offer(now, t, token) && start(now);
  }
  bool start(time_ns now) {
    bool all = true;
    while (const auto token = arbiter.take_started()) {
      if (links.start(now, *token, offered[*token])) continue;
      all = false;
      arbiter.on_left(*token);
      arbiter.on_finished(*token);
    }
    return all;
  }
  void look(time_ns now) {
    arbiter.poll();
    start(now);
  }
  std::optional<link_pacing::event> take(time_ns now) {
    const auto e = links.take_event(now);
    if (e && e->left) arbiter.on_left(e->token), start(now);
    if (e && e->last) arbiter.on_finished(e->token);
    return e;
  }
  time_ns next(time_ns now) const { return arbiter.is_choosing() ? now : links.next_event_at(); }

  wan_arbiter arbiter;
  paced_links links;
  std::vector<link_pacing::transfer> offered;
};

struct seen {
  time_ns at = 0;
  std::uint32_t token = 0, part = 0;
  bool there = false, left = false;
  bool operator==(const seen&) const = default;
};

/// Runs it until a time, or until no transfer is left.
std::vector<seen> run(paced_wan& d, time_ns from, time_ns until = never_ns) {
  std::vector<seen> all;
  for (auto now = from;;) {
    d.look(now);
    while (const auto e = d.take(now)) all.push_back({now, e->token, e->part, e->arrived, e->left});
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

TEST_CASE("a tensor takes its bytes over the pair's rate, to the nanosecond") {
  paced_wan d;
  REQUIRE(d.offer(5 * slot, from_pipeline(0), 0));
  CHECK(run(d, 5 * slot) == std::vector<seen>{{6 * slot, 0, 0, true, true}});
  // 96 MiB at 293 Mbit/s and at 5 Gbit/s: the paper's 2.75 s and 0.161 s.
  link_rates r = rate(5);
  r.connection_gbps = 0.293;
  CHECK(r.duration_ns(96 << 20, 1) == 2'748'485'898);
  CHECK(r.duration_ns(96 << 20, 18) == 161'061'274);
}

TEST_CASE("connections add up to at most the pair's rate") {
  link_rates r = rate(4);
  r.connection_gbps = 0.5;
  const double bytes = 1e6;  // 8 Mbit: 2 ms at 4 Gbit/s
  CHECK(r.duration_ns(bytes, 1) == 16'000'000);
  CHECK(r.duration_ns(bytes, 4) == 4'000'000);
  CHECK(r.duration_ns(bytes, 8) == 2'000'000);
  CHECK(r.duration_ns(bytes, 16) == 2'000'000);
  CHECK(link_rates{}.duration_ns(bytes, 1) == 0);
  CHECK(rate(1e-300).duration_ns(1e18, 1) == paced_links::longest_ns);
}

TEST_CASE("tensors of one pair queue behind each other, those of another pair do not") {
  paced_wan d;
  for (std::uint32_t i = 0; i < 3; ++i) REQUIRE(d.offer(0, from_pipeline(0), i));
  REQUIRE(d.offer(0, from_pipeline(1), 3));
  CHECK(arrivals(run(d, 0)) == order{{0, slot}, {3, slot}, {1, 2 * slot}, {2, 3 * slot}});
}

TEST_CASE("a tensor over several pairs of a cell takes its share of the time on each") {
  paced_wan d;
  for (const std::uint32_t pairs : {1U, 2U, 4U, 5U}) {
    auto t = from_pipeline(0);
    t.from.lease = pairs;
    t.path.pairs = pairs;
    REQUIRE(d.offer(0, t, pairs));
  }
  CHECK(arrivals(run(d, 0)) == order{{5, slot / 5}, {4, slot / 4}, {2, slot / 2}, {1, slot}});
}

TEST_CASE("a tensor over several pairs starts when all of them are free") {
  paced_wan d;
  REQUIRE(d.offer(0, from_pipeline(1), 0));
  auto both = from_pipeline(0);
  both.path.pairs = 2;
  REQUIRE(d.offer(slot / 4, both, 1));
  CHECK(arrivals(run(d, slot / 4)) == order{{0, slot}, {1, 3 * slot / 2}});
}

TEST_CASE("latency is added to a transfer, and its pair is free before it has passed") {
  paced_wan d{rate(slot_gbps, 10 * slot)};
  for (std::uint32_t i = 0; i < 2; ++i) REQUIRE(d.offer(0, from_pipeline(0), i));
  CHECK(run(d, 0) == std::vector<seen>{{slot, 0, 1, false, true},
                                       {2 * slot, 1, 1, false, true},
                                       {11 * slot, 0, 0, true, false},
                                       {12 * slot, 1, 0, true, false}});
}

TEST_CASE("parts arrive one after the other, the last one when the transfer ends") {
  paced_wan d{rate(slot_gbps, 1000)};
  REQUIRE(d.offer(0, from_pipeline(0), 0, 4));
  order parts;
  for (const auto& s : run(d, 0))
    if (s.there) parts.emplace_back(s.part, s.at);
  CHECK(parts == order{{0, slot / 4 + 1000},
                       {1, slot / 2 + 1000},
                       {2, 3 * slot / 4 + 1000},
                       {3, slot + 1000}});
}

TEST_CASE("serialized transfers of a cell cross one at a time, the smallest waiting rank first") {
  paced_wan d;
  REQUIRE(d.offer(0, serialized(0, 9), 0));  // no other is waiting: it starts
  REQUIRE(d.offer(1, serialized(1, 7), 1));
  REQUIRE(d.offer(2, serialized(2, 5), 2));
  REQUIRE(d.offer(3, serialized(3, 6), 3));
  CHECK(arrivals(run(d, 3)) == order{{0, slot / 2}, {2, slot}, {3, 3 * slot / 2}, {1, 2 * slot}});
}

TEST_CASE("serialized transfers of other cells, hops and directions do not wait for each other") {
  paced_wan d;
  REQUIRE(d.offer(0, serialized(0, 1), 0));
  auto other_cell = serialized(2, 2);
  other_cell.path.first_pair = 2;
  REQUIRE(d.offer(0, other_cell, 1));
  auto other_hop = serialized(0, 3);
  other_hop.from.stage = 4, other_hop.to_stage = 5;
  REQUIRE(d.offer(0, other_hop, 2));
  auto back = serialized(0, 4);
  back.from.stage = 1, back.to_stage = 0;
  REQUIRE(d.offer(0, back, 3));
  for (const auto& [token, at] : arrivals(run(d, 0))) CHECK(at == slot / 2);
}

TEST_CASE("of serialized transfers, an earlier iteration goes first, whatever the ranks") {
  paced_wan d;
  REQUIRE(d.offer(0, serialized(0, 0), 0));
  auto next = serialized(1, 0);
  next.iteration = 1;
  REQUIRE(d.offer(0, next, 1));
  REQUIRE(d.offer(0, serialized(2, 8), 2));
  CHECK(arrivals(run(d, 0)) == order{{0, slot / 2}, {2, slot}, {1, 3 * slot / 2}});
}

TEST_CASE("a stage's own serialized tensors stay in order, even if their ranks decrease") {
  paced_wan d;
  REQUIRE(d.offer(0, serialized(1, 0), 9));
  for (std::uint32_t i = 0; i < 4; ++i) REQUIRE(d.offer(0, serialized(0, 10 - i), i));
  std::vector<std::uint32_t> tokens;
  for (const auto& [token, at] : arrivals(run(d, 0))) tokens.push_back(token);
  CHECK(tokens == std::vector<std::uint32_t>{9, 0, 1, 2, 3});
}

TEST_CASE("after a training restarts, the ranks of its transfers count again") {
  paced_wan d;
  auto late = serialized(0, 50);
  late.iteration = 7;
  REQUIRE(d.offer(0, late, 0));
  run(d, 0);
  REQUIRE(d.offer(9 * slot, serialized(2, 0), 0));
  REQUIRE(d.offer(9 * slot, serialized(1, 4), 1));
  REQUIRE(d.offer(9 * slot, serialized(0, 3), 2));
  const auto all = arrivals(run(d, 9 * slot));
  REQUIRE(all.size() == 3);
  CHECK(all[1].first == 2);
}

TEST_CASE("with rounds, transfers that arrive at the same instant are ranked together") {
  paced_wan d{rate(slot_gbps), 3};
  const auto come = [&](time_ns at, std::uint32_t p, std::uint32_t rank, std::uint32_t token) {
    REQUIRE(d.offer(at, serialized(p, rank), token));
    CHECK(d.next(at) == at);
    d.look(at);
    CHECK_FALSE(d.take(at));
  };
  come(0, 1, 5, 0);
  come(0, 0, 4, 1);
  CHECK(arrivals(run(d, 0)) == order{{1, slot / 2}, {0, slot}});
}

TEST_CASE(
    "the next serialized transfer starts when the caller reports that the last one has left") {
  wan_arbiter d;
  REQUIRE(d.offer(0, serialized(0, 1), 0));
  REQUIRE(d.offer(0, serialized(1, 2), 1));
  CHECK(d.take_started() == 0U);
  CHECK_FALSE(d.take_started());
  d.on_left(0);
  d.on_finished(0);
  CHECK(d.take_started() == 1U);
}

TEST_CASE("jitter stays within its limit, and no transfer overtakes another on its pair") {
  auto r = rate(slot_gbps, 1000);
  r.jitter_ns = 5 * slot;
  paced_wan d{r};
  for (std::uint32_t i = 0; i < 200; ++i) REQUIRE(d.offer(0, from_pipeline(0), i));
  const auto all = arrivals(run(d, 0));
  REQUIRE(all.size() == 200);
  time_ns max = 0;
  for (std::uint32_t i = 0; i < 200; ++i) {
    CHECK(all[i].first == i);
    const auto late = all[i].second - (i + 1) * slot - 1000;
    CHECK(late >= 0);
    CHECK(late <= 5 * slot);
    max = std::max(max, late);
  }
  CHECK(max > slot);
}

TEST_CASE("invalid transfers are refused without a trace, and queues and hops are bounded") {
  paced_wan d{rate(1e-9)};
  auto t = from_pipeline(0);
  t.path.pairs = ~0U;
  CHECK_FALSE(d.offer(0, t, 0));
  t.path = {~0U, 1, 1, false, 0};
  CHECK_FALSE(d.offer(0, t, 0));
  t.path = {wan_arbiter::max_pairs, 1, 1, true, 0};
  CHECK_FALSE(d.offer(0, t, 0));
  CHECK(d.arbiter.hops() == 0);
  CHECK_FALSE(d.offer(0, from_pipeline(0), 0, 0));
  CHECK_FALSE(d.offer(0, from_pipeline(0), 0, ~0U));
  link_pacing::transfer many;
  many.pairs = ~0U;
  CHECK_FALSE(d.links.start(0, 0, many));
  many.pairs = 0;
  CHECK_FALSE(d.links.start(0, 0, many));
  t = from_pipeline(0, ~std::uint64_t{0});
  t.path.connections = ~0U;
  std::uint32_t taken = 0;
  while (taken < 10 && d.offer(0, t, taken)) ++taken;
  CHECK(taken == 2);  // more than the longest queue of time is not accepted
  for (std::uint32_t i = 0; i < 2 * wan_arbiter::max_hops; ++i) {
    t = from_pipeline(0);
    t.from.lease = i + 10;
    d.offer(0, t, 100 + i);
  }
  CHECK(d.arbiter.hops() == wan_arbiter::max_hops);
}

TEST_CASE("unused hops are forgotten, hops with transfers in flight are not") {
  paced_wan d;
  REQUIRE(d.offer(0, from_pipeline(0), 0));
  auto other = from_pipeline(0, 1);
  other.from.lease = 2;
  REQUIRE(d.offer(0, other, 1));
  run(d, 0, slot / 2);
  CHECK(d.arbiter.hops() == 2);
  CHECK(d.links.hops() == 2);
  d.arbiter.forget(slot);
  d.links.forget(slot);
  CHECK(d.arbiter.hops() == 1);
  CHECK(d.links.hops() == 1);
  CHECK(arrivals(run(d, slot)) == order{{0, slot}});
  d.arbiter.forget(2 * slot);
  d.links.forget(2 * slot);
  CHECK(d.arbiter.hops() == 0);
  CHECK(d.links.hops() == 0);
}

TEST_CASE("under random load every tensor arrives once, in its flow's order, at most at the rate") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    random_source random{seed};
    paced_wan d{rate(slot_gbps, 1000), static_cast<std::uint32_t>(seed % 4)};
    std::vector<seen> all;
    std::vector<tensor> sent;
    time_ns now = 0;
    constexpr std::uint32_t tensors = 300;
    for (std::uint32_t i = 0; i < tensors; ++i) {
      now += static_cast<time_ns>(random.below(slot));
      for (const auto& s : run(d, now, now)) all.push_back(s);
      const auto p = static_cast<std::uint32_t>(random.below(4));
      auto t = serialized(p, static_cast<std::uint32_t>(random.below(50)), 4);
      t.bytes = random.below(3 * slot_bytes);
      t.microbatch = i;
      REQUIRE(d.offer(now, t, i, 1 + static_cast<std::uint32_t>(random.below(5))));
      sent.push_back(t);
    }
    for (const auto& s : run(d, now)) all.push_back(s);
    std::map<std::uint32_t, std::uint32_t> last;  // by pipeline
    std::map<std::uint32_t, int> left;
    std::uint32_t whole = 0;
    time_ns end = 0, last_left = 0;
    for (const auto& s : all) {
      if (s.left) {
        // One at a time, each over the four pairs of its cell.
        const double takes_ns = double(sent[s.token].bytes) / (4 * slot_bytes) * slot;
        CHECK(double(s.at - last_left) >= takes_ns - 1);
        last_left = s.at;
        ++left[s.token];
      }
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
