#include <catch2/catch.hpp>

#include "actors/serving/prefill/guests_fixture.hpp"

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;

namespace {

using state = prefill_progress::state;

std::vector<state> states(const std::vector<prefill_progress>& all) {
  std::vector<state> s;
  for (const auto& p : all) s.push_back(p.now);
  return s;
}

/// All pages of all layers once, and the last hidden state.
bool complete(const received_prompt& d, std::uint32_t tokens) {
  std::map<std::uint32_t, std::uint32_t> pages;  // by layer
  for (const auto& [at, count] : d.counts) pages[at.first] += count;
  if (pages.size() != 8 || !d.last) return false;
  return std::ranges::all_of(pages, [&](const auto& p) { return p.second == (tokens + 63) / 64; });
}

}  // namespace

TEST_CASE("A decoder gets every page of every layer once, for all rules and numbers of guests") {
  for (const auto* rule : {"resumable", "chunked", "whole", "look-ahead"})
    for (const std::uint32_t guests : {1, 2, 3, 8})
      for (const std::uint32_t tokens : {1, 63, 64, 65, 700, 2000}) {
        INFO(rule << ", " << guests << " guests, " << tokens << " tokens");
        auto how = lending_of_eight();
        how.rule = rule;
        guests_fixture g{group_of(guests), how};
        g.order(1, tokens);
        g.compute();
        CHECK(complete(g.decoders.at(1), tokens));
        CHECK_FALSE(g.pending());
        const auto progress = g.take<prefill_progress>();
        std::uint64_t hidden_bytes = 0;
        for (const auto& p : progress) hidden_bytes += p.hidden_bytes;
        constexpr std::uint64_t row_bytes = 2 * 256;  // half precision
        CHECK(hidden_bytes == (guests - 1) * tokens * row_bytes);
        const auto received = states(progress);
        CHECK(std::ranges::count(received, state::held) == guests);
        CHECK(std::ranges::count(received, state::ended) == guests);
        CHECK(received.size() == 2 * guests);
      }
}

TEST_CASE("What a lossy network loses is sent again, in whatever order it comes") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    guests_fixture g{group_of(3), lending_of_eight(), {0.3, 0.001, seed, false}, {}};
    for (std::uint64_t n = 1; n <= 4; ++n) g.order(n, 300 + 100 * static_cast<std::uint32_t>(n));
    g.compute();
    CHECK(g.lost > 0);
    for (std::uint64_t n = 1; n <= 4; ++n)
      CHECK(complete(g.decoders.at(n), 300 + 100 * static_cast<std::uint32_t>(n)));
    CHECK_FALSE(g.pending());
  }
}

TEST_CASE("A guest takes prompts in their order, and no tile passes one of an earlier prompt") {
  guests_fixture g{group_of(1), lending_of_eight()};
  g.order(5, 400);
  g.order(2, 400);
  g.order(9, 64);
  CHECK(g.engine(0).next(never).count > 0);
  g.compute(1);  // the first tile of 5 is not interrupted
  std::vector<std::uint64_t> ended;
  for (int i = 0; i < 10'000 && g.pending(); ++i) {
    g.compute(1);
    for (const auto& p : g.take<prefill_progress>())
      if (p.now == state::ended) ended.push_back(p.name.number);
  }
  CHECK(ended == std::vector<std::uint64_t>{2, 5, 9});
}

TEST_CASE("A later prompt's input waits until the earlier one's has come") {
  guests_fixture g{group_of(2), lending_of_eight()};
  g.order(1, 64);
  g.order(2, 64);
  prefill_block b;
  b.what = prefill_block::kind::hidden;
  b.name = {decoder_of_guests, 3, 2};
  b.count = 64;
  g.receive(1, first_guest_node, b);
  CHECK(g.engine(1).next(never).count == 0);
  b.name.number = 1;
  g.receive(1, first_guest_node, b);
  CHECK(g.engine(1).next(never).count > 0);
}

TEST_CASE("An order that is repeated is answered, and one that comes late finds its blocks") {
  guests_fixture g{group_of(2), lending_of_eight()};
  g.give(0, g.order_of(1, 500, 0));
  g.give(0, g.order_of(1, 500, 0));
  g.await_blocks(1);
  for (int i = 0; i < 40; ++i) g.compute(1);
  CHECK(states(g.take<prefill_progress>()) == std::vector{state::held, state::held, state::ended});
  g.give(1, g.order_of(1, 500, 1));
  g.compute();
  CHECK(complete(g.decoders.at(1), 500));
}

TEST_CASE("A cancelled prompt is forgotten at once, and its name is over") {
  guests_fixture g{group_of(2), lending_of_eight()};
  g.order(1, 2000);
  g.compute(3);
  g.advance(1);
  g.take<prefill_progress>();
  g.cancel(1);
  CHECK_FALSE(g.pending());
  CHECK(g.engine(0).next(never).count == 0);
  g.advance(1);
  CHECK(states(g.take<prefill_progress>()) == std::vector{state::gone, state::gone});
  g.order(1, 2000);
  g.advance(1);
  CHECK(states(g.take<prefill_progress>()) == std::vector{state::gone, state::gone});
  CHECK_FALSE(g.pending());
}

TEST_CASE("A cancellation that arrives before its order still cancels it") {
  guests_fixture g{group_of(1), lending_of_eight()};
  g.cancel(1);
  g.order(1, 100);
  g.advance(1);
  CHECK(states(g.take<prefill_progress>()) == std::vector{state::gone});
}

TEST_CASE("A prompt whose time is over is given up, and the next one goes on") {
  guests_fixture g{group_of(2), lending_of_eight()};
  auto o = g.order_of(1, 300, 1);
  o.latest_s = 2;
  g.give(1, o);  // its input never comes
  g.order(2, 300);
  g.compute();
  CHECK(g.now_s > 101.99);
  CHECK(complete(g.decoders.at(2), 300));
  const auto received = g.take<prefill_progress>();
  const auto gone = std::ranges::find(received, state::gone, &prefill_progress::now);
  REQUIRE(gone != received.end());
  CHECK(gone->name.number == 1);
}

TEST_CASE("A decoder that needs no more of a prompt ends it at the guests") {
  guests_fixture g{group_of(1), lending_of_eight()};
  g.order(1, 2000);
  g.compute(1);
  blocks_received r;
  r.name = {decoder_of_guests, 3, 1};
  r.whole = true;
  g.receive(0, decoder_of_guests, r);
  CHECK_FALSE(g.pending());
  CHECK(g.engine(0).next(never).count == 0);
}

TEST_CASE("Only the hosts of an order may send what belongs to it") {
  guests_fixture g{group_of(3), lending_of_eight()};
  g.order(1, 64);
  prefill_block b;
  b.what = prefill_block::kind::hidden;
  b.name = {decoder_of_guests, 3, 1};
  b.count = 64;
  const auto ignored = [&](address from, const message& m) {
    const auto before = g.prompts(1).rejected();
    g.receive(1, from, m);
    CHECK(g.prompts(1).rejected() == before + 1);
    CHECK(g.engine(1).next(never).count == 0);
    CHECK(g.prompts(1).held() == 1);
  };
  ignored(first_guest_node + 2, b);
  ignored(decoder_of_guests, b);
  auto bad = b;
  bad.index = 1;
  ignored(first_guest_node, bad);
  bad = b;
  bad.blocks = 2;
  ignored(first_guest_node, bad);
  bad = b;
  bad.count = 65;
  ignored(first_guest_node, bad);
  bad = b;
  bad.first = 64;
  ignored(first_guest_node, bad);
  blocks_received r;
  r.name = b.name;
  r.guest = 1;
  r.whole = true;
  ignored(first_guest_node, r);
  r.hidden = true;
  ignored(decoder_of_guests, r);
}

TEST_CASE("Invalid prefill orders are rejected with a reason") {
  guests_fixture g{group_of(2), lending_of_eight()};
  const auto refused = [&](const prefill_order& o) {
    g.give(1, o);
    g.advance(1);
    const auto received = g.take<prefill_progress>();
    REQUIRE(received.size() == 1);
    CHECK(received[0].now == state::gone);
    CHECK(received[0].why.text.size() > 10);
    CHECK_FALSE(g.pending());
  };
  const auto good = g.order_of(1, 100, 1);
  auto o = good;
  o.tokens = 0;
  refused(o);
  o.tokens = 1u << 21;
  refused(o);
  o = good;
  o.guest = 2;
  refused(o);
  o = good;
  o.group.guests.clear();
  refused(o);
  o = good;
  o.group.guests[1].layers = 5;
  refused(o);
  o = good;
  o.group.guests[0].layers = 3;
  refused(o);
  o = good;
  o.group.guests[1].node = 77;
  refused(o);
  o = good;
  o.group.guests[0].token_s = -1;
  refused(o);
  o = good;
  o.latest_s = std::numeric_limits<double>::infinity();
  refused(o);
  o = good;
  g.give(1, o, {}, {reason::kind::unavailable, "paused_by_delay_budget: too many delays"});
  g.advance(1);
  CHECK(g.take<prefill_progress>().at(0).why.text.starts_with("paused_by_delay_budget"));
}

TEST_CASE("Invalid guest setups are rejected with a reason") {
  const auto place = group_of(2).guests[1];
  const auto good = lending_of_eight();
  CHECK(shape_of({good, place, {}}, 1));
  auto how = good;
  how.rule = "best";
  CHECK_FALSE(shape_of({how, place, {}}, 1));
  how = good;
  how.rule = "chunked";
  how.chunk = 100;
  CHECK_FALSE(shape_of({how, place, {}}, 1));
  how = good;
  how.op_ms = 0;
  CHECK_FALSE(shape_of({how, place, {}}, 1));
  auto p = place;
  p.layers = 0;
  CHECK_FALSE(shape_of({good, p, {}}, 1));
  p = place;
  p.layers = 5;
  CHECK_FALSE(shape_of({good, p, {}}, 1));
  p = place;
  p.pair_s = std::numeric_limits<double>::quiet_NaN();
  CHECK_FALSE(shape_of({good, p, {}}, 1));
}

TEST_CASE("A simulated guest says how often the training interrupted a prompt") {
  guests_fixture g{group_of(1), lending_of_eight()};
  g.order(1, 64);
  for (int i = 0; i < 8; ++i) {
    g.engine(0).next(never);
    if (i % 4 == 3) g.now_s += 1;
    g.now_s += g.engine(0).next(never).each_s;
    g.engine(0).execute(1);
  }
  g.settle();
  g.advance(1);
  const auto received = g.take<prefill_progress>();
  REQUIRE(received.back().now == state::ended);
  CHECK(received.back().steps == 8);
  CHECK(received.back().yields == 2);
}
