#include "runtime/virtual/paced_links.hpp"

#include <catch2/catch.hpp>

#include "runtime/virtual/world_fixture.hpp"

using namespace troupe;
using namespace troupe::runtime;
using namespace troupe::runtime::tests;

namespace {

constexpr time_ns ms = 1'000'000;

paced_links::rates one_link(double node_gbps, double connection_gbps = 0, time_ns delay_ns = 0) {
  paced_links::rates all(1);
  all[0].emplace();
  all[0]->node_gbps = node_gbps;
  all[0]->connection_gbps = connection_gbps;
  all[0]->delay_ns = delay_ns;
  return all;
}

link_pacing::transfer megabyte(std::uint32_t pairs = 1, std::uint32_t parts = 1) {
  link_pacing::transfer t;
  t.lease = 1, t.to_stage = 1;
  t.pairs = pairs, t.parts = parts;
  t.bytes = 1e6;
  return t;
}

}  // namespace

TEST_CASE("a transfer is paced by the pair's rate or its connections' total, whichever is slower") {
  const auto takes = [](double node, double connection, std::uint32_t connections) {
    link_rates r;
    r.node_gbps = node, r.connection_gbps = connection;
    return r.duration_ns(1e6, connections);
  };
  CHECK(takes(8, 0, 1) == ms);
  CHECK(takes(8, 0, 5) == ms);
  CHECK(takes(8, 2, 1) == 4 * ms);
  CHECK(takes(8, 2, 3) == 4 * ms / 3);
  CHECK(takes(8, 2, 4) == ms);
  CHECK(takes(8, 2, 9) == ms);
  CHECK(takes(0, 2, 4) == ms);
  CHECK(takes(0, 0, 4) == 0);
  CHECK(takes(1e-12, 0, 1) == paced_links::longest_ns);
}

TEST_CASE("a transfer is paced by its size and its flows, and a slow link slows all of it") {
  auto c = two_sites();
  c.wan[0].connection_gbps = 0;
  c.wan[0].rates = {{1'000'000, 4}, {4'000'000, 8}};
  c.wan[0].flow_rates = {{1, 1}};
  const auto rates = *rates_from(c, 0, false)[1];
  CHECK(rates.duration_ns(1e6, 1, 1e6, 16) == 2 * ms);
  CHECK(rates.duration_ns(2e6, 1, 2e6, 16) == Approx(2e6 * 8 / 6));
  CHECK(rates.duration_ns(4e6, 1, 4e6, 16) == 4 * ms);
  CHECK(rates.duration_ns(4e6, 1, 4e6, 2) == 16 * ms);
  // Two pairs carry half of it each, at the rate of the whole tensor's size.
  CHECK(rates.duration_ns(2e6, 1, 4e6, 16) == 2 * ms);
  // The last byte has left after bytes / rate, which a fault makes slower.
  for (const double slow : {1.0, 4.0}) {
    paced_links links{c, 0, false, random_source{1}, [=](std::uint32_t) { return slow; }};
    auto t = megabyte();
    t.datacenter = 1, t.flows = 2;
    REQUIRE(links.start(0, 0, t));
    const auto left = links.next_event_at();
    CHECK(static_cast<double>(left) == Approx(4e6 * slow));
  }
}

TEST_CASE("unlisted links have default rates; on request only emulated links are paced") {
  auto c = two_sites();
  c.datacenters.push_back({"north", ""});
  c.wan[0].jitter_ms = 3;
  const auto all = rates_from(c, 0, false);
  REQUIRE(all.size() == 3);
  CHECK(all[1]->node_gbps == 8);
  CHECK(all[1]->connection_gbps == 4);
  CHECK(all[1]->delay_ns == 20 * ms);
  CHECK(all[1]->jitter_ns == 3 * ms);
  CHECK(all[2]->node_gbps == unlisted_wan_gbps);
  CHECK(all[2]->connection_gbps == 0);
  CHECK(all[2]->delay_ns == time_ns(unlisted_wan_rtt_ms / 2 * ms));
  CHECK(all[2]->jitter_ns == 0);
  for (const auto& r : rates_from(c, 0, true)) CHECK_FALSE(r);
  c.wan[0].emulate = true;
  CHECK(rates_from(c, 1, true)[0]);
  CHECK_FALSE(rates_from(c, 1, true)[2]);
}

TEST_CASE("transfers of a pair follow each other, and each of several pairs carries its share") {
  paced_links links{one_link(8, 0, 5 * ms)};
  REQUIRE(links.start(0, 0, megabyte()));
  REQUIRE(links.start(0, 1, megabyte()));
  auto two = megabyte(2, 2);
  two.first_pair = 1;
  REQUIRE(links.start(0, 2, two));
  std::vector<std::pair<time_ns, link_pacing::event>> seen;
  while (links.next_event_at() != never_ns) {
    const auto at = links.next_event_at();
    CHECK_FALSE(links.take_event(at - 1));
    seen.emplace_back(at, *links.take_event(at));
  }
  using event = link_pacing::event;
  const std::vector<std::pair<time_ns, event>> known = {
      {ms / 2, {2, 2, false, true, false}},         {ms, {0, 1, false, true, false}},
      {2 * ms, {1, 1, false, true, false}},         {5 * ms + ms / 4, {2, 0, true, false, false}},
      {5 * ms + ms / 2, {2, 1, true, false, true}}, {6 * ms, {0, 0, true, false, true}},
      {7 * ms, {1, 0, true, false, true}}};
  CHECK(seen == known);
}

TEST_CASE("invalid transfers are refused, and so is one that would wait for ever") {
  paced_links links{one_link(8)};
  const auto starts = [&](auto change) {
    auto t = megabyte();
    change(t);
    return links.start(0, 0, t);
  };
  CHECK_FALSE(starts([](auto& t) { t.pairs = 0; }));
  CHECK_FALSE(starts([](auto& t) { t.parts = 0; }));
  CHECK_FALSE(starts([](auto& t) { t.pairs = paced_links::max_pairs + 1; }));
  CHECK(starts([](auto& t) { t.pairs = paced_links::max_pairs; }));
  CHECK_FALSE(starts([](auto& t) { t.first_pair = paced_links::max_pairs; }));
  CHECK(starts([](auto& t) { t.first_pair = paced_links::max_pairs - 1; }));
  CHECK_FALSE(starts([](auto& t) { t.parts = paced_links::max_parts + 1; }));
  CHECK(starts([](auto& t) { t.parts = paced_links::max_parts, t.lease = 2; }));
  auto endless = megabyte();
  endless.lease = 3, endless.bytes = 1e30;
  CHECK(links.start(0, 1, endless));
  CHECK(links.start(0, 2, endless));
  CHECK_FALSE(links.start(0, 3, endless));
}

TEST_CASE("pairs are forgotten once they are idle and have not been used for a while") {
  paced_links links{one_link(8)};
  REQUIRE(links.start(10, 0, megabyte()));
  links.forget(never_ns);
  CHECK(links.hops() == 1);
  while (links.take_event(2 * ms)) continue;
  links.forget(10);
  CHECK(links.hops() == 1);
  links.forget(11);
  CHECK(links.hops() == 0);
}

TEST_CASE("with jitter no transfer overtakes another, and none exceeds the jitter limit") {
  auto rates = one_link(8, 0, 10 * ms);
  rates[0]->jitter_ns = 8 * ms;
  paced_links links{rates, random_source{3}};
  for (std::uint32_t i = 0; i < 200; ++i) REQUIRE(links.start(0, i, megabyte()));
  std::uint32_t next = 0;
  bool late = false;
  while (links.next_event_at() != never_ns) {
    const auto at = links.next_event_at();
    const auto e = *links.take_event(at);
    if (!e.arrived) continue;
    CHECK(e.token == next++);
    const auto due = (e.token + 1) * ms + 10 * ms;
    CHECK(at >= due);
    CHECK(at <= due + 8 * ms);
    late |= at > due + ms;
  }
  CHECK(next == 200);
  CHECK(late);
}
