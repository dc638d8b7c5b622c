#include <catch2/catch.hpp>

#include <algorithm>

#include "bubbletea/prefill_replay.hpp"
#include "messages/base/random.hpp"
#include "planners/bubbletea/packing_bound.hpp"

using namespace troupe;
using namespace troupe::planners;
using namespace bubbletea;

namespace {

/// A token takes a thousandth of a second in one layer.
prefill_group alone(std::uint32_t device, std::uint32_t layers = 1) {
  return {{{device, 0, layers, {1e-3 / layers, 0, 0}}}, 0, 0};
}

prefill_prompt prompt(std::uint64_t id, double arrival_s, std::uint32_t tokens,
                      double latest_s = never, std::int32_t priority = 0) {
  return {id, arrival_s, tokens, latest_s, priority};
}

packing_options by(packing_rule rule) {
  packing_options o;
  o.rule = rule;
  o.op_s = 0.5;
  o.chunk = 1000;
  return o;
}

double end_of(const prefill_replay& done, std::uint64_t id) {
  for (const auto& s : done.served)
    if (s.id == id) return s.end_s;
  return never;
}

const idle_windows two_bubbles{{0, 2}, {3, 6}, {10, 100}};

}  // namespace

TEST_CASE("a whole prompt waits for a bubble that holds it, and the next ones behind it") {
  prefill_packing p{by(packing_rule::whole), {alone(0)}, {two_bubbles}};
  CHECK(p.admit(prompt(1, 0, 1500), 0)->end_s == Approx(1.5));
  CHECK(p.admit(prompt(2, 0, 2500), 0)->end_s == Approx(5.5));
  CHECK(p.admit(prompt(3, 0, 400), 0)->end_s == Approx(5.9));
  CHECK(p.admit(prompt(4, 0, 400), 0)->end_s == Approx(10.4));
}

TEST_CASE("under rule whole the first device that holds the head gets it, and nobody passes it") {
  prefill_packing p{by(packing_rule::whole), {alone(0), alone(1)}, {{{0, 2}, {8, 99}}, {{5, 99}}}};
  CHECK(*p.admit(prompt(1, 0, 3000), 0) == prefill_promise{1, 8});
  // The first device's bubble would hold it at once, but the head waits for second 5.
  CHECK(*p.admit(prompt(2, 0, 1000), 0) == prefill_promise{0, 9});
}

TEST_CASE("chunks of a prompt go into the bubbles one after the other") {
  prefill_packing p{by(packing_rule::chunked), {alone(0)}, {two_bubbles}};
  // 1,000 tokens each: two in the first bubble, three in the second; the last 500 after that.
  CHECK(p.admit(prompt(1, 0, 5500), 0)->end_s == Approx(10.5));
  CHECK(p.admit(prompt(2, 0, 1000), 0)->end_s == Approx(11.5));
}

TEST_CASE("a resumable prompt stops at an operation's end and goes on in the next bubble") {
  // 10 layers; tiles of 448 tokens take 0.0448 s a layer.
  prefill_packing p{by(packing_rule::resumable), {alone(0, 10)}, {two_bubbles}};
  const auto promise = p.admit(prompt(1, 0, 4480), 0);
  REQUIRE(promise);
  CHECK(promise->end_s > 5.4);
  CHECK(promise->end_s < 5.7);
  const auto first = p.next(0, 0);
  REQUIRE(first.piece);
  CHECK(first.piece->tile == 0);
  const auto done = replay_prefills({by(packing_rule::resumable), {alone(0, 10)}, {two_bubbles}}, 1,
                                    std::vector{prompt(1, 0, 4480)});
  REQUIRE(done.served.size() == 1);
  CHECK(done.served[0].end_s == Approx(promise->end_s));
  CHECK(total_s(done.used(0)) == Approx(4.48));
}

TEST_CASE("a resumable prompt has as few tiles as the longest operation allows") {
  random_source r{89};
  int several = 0;
  for (int i = 0; i < 2000; ++i) {
    prefill_group g = alone(0, 1 + static_cast<std::uint32_t>(r.below(8)));
    g.guests[0].rate = {1e-3 * r.uniform(), 1e-7 * r.uniform(), 200 * r.uniform()};
    const auto tokens = 1 + static_cast<std::uint32_t>(r.below(5000));
    auto o = by(packing_rule::resumable);
    o.op_s = 0.01 + 0.5 * r.uniform();
    std::uint32_t rows = 64;
    while (rows <= tokens &&
           g.guests[0].rate.layer_s(rows + 64, std::max(0.0, tokens - (rows + 64.0))) <= o.op_s)
      rows += 64;
    const auto w = work_of(g, tokens, o);
    INFO("case " << i << ": " << tokens << " tokens, at most " << rows << " rows");
    const auto fewest = (tokens + rows - 1) / rows;
    const auto equal = ((tokens + fewest - 1) / fewest + 63) / 64 * 64;
    CHECK(w.hop_s.size() <= fewest);
    CHECK(w.hop_s.size() >= fewest - fewest / 8);
    several += fewest > 1;
    double cached = 0, left = tokens;
    for (std::size_t tile = 0; tile < w.hop_s.size(); ++tile) {
      CHECK(w.guests[0][tile].count == g.guests[0].layers);
      // The rows of this tile, from its time.
      double n = 1;
      while (n < left && g.guests[0].rate.layer_s(n, cached) < w.guests[0][tile].each_s * 0.999999)
        ++n;
      CHECK(g.guests[0].rate.layer_s(n, cached) == Approx(w.guests[0][tile].each_s));
      if (tile + 1 < w.hop_s.size()) CHECK(static_cast<int>(n) % 64 == 0);
      CHECK(n <= equal);
      cached += n, left -= n;
    }
    CHECK(left == 0);
  }
  CHECK(several > 500);
}

TEST_CASE("look-ahead fills a bubble with those that fit it best") {
  const std::vector requests{prompt(1, 0, 1500), prompt(2, 0, 2500), prompt(3, 0, 500),
                             prompt(4, 0, 400)};
  const auto replay = [&](std::uint32_t ahead) {
    auto o = by(packing_rule::look_ahead);
    o.look_ahead = ahead;
    return replay_prefills({o, {alone(0)}, {two_bubbles}}, 1, requests);
  };
  // The first begins as it arrives; the third fills its bubble; the second and fourth the next.
  const auto far = replay(4);
  CHECK(end_of(far, 1) == Approx(1.5));
  CHECK(end_of(far, 3) == Approx(2));
  CHECK(end_of(far, 4) == Approx(5.9));
  // With a look-ahead of 1 the second one blocks the others.
  CHECK(end_of(replay(1), 3) == Approx(6));
}

TEST_CASE("look-ahead does not let a prompt pass another one that would then be late") {
  auto o = by(packing_rule::look_ahead);
  o.look_ahead = 8;
  // The second would fill the bubble better, but then the first ends at 11.
  const std::vector requests{prompt(1, 0, 1000, 5), prompt(2, 0, 1800)};
  const std::vector<idle_windows> w{{{1, 3}, {10, 100}}};
  const auto done = replay_prefills({o, {alone(0)}, w}, 1, requests);
  CHECK(end_of(done, 1) == Approx(2));
  CHECK(end_of(done, 2) == Approx(11.8));
  const std::vector patient{prompt(1, 0, 1000, 50), prompt(2, 0, 1800)};
  const auto other = replay_prefills({o, {alone(0)}, w}, 1, patient);
  CHECK(end_of(other, 2) == Approx(2.8));
  CHECK(end_of(other, 1) == Approx(11));
}

TEST_CASE("an urgent prompt goes first only where no promise breaks by it") {
  const std::vector<idle_windows> w{{{1, 100}}};
  for (const double latest : {5.0, 2.5}) {
    prefill_packing p{by(packing_rule::resumable), {alone(0)}, w};
    REQUIRE(p.admit(prompt(1, 0, 1000, latest), 0));
    const auto urgent = p.admit(prompt(2, 0.5, 1000, never, 1), 0.5);
    if (latest == 5) {
      REQUIRE(urgent);
      CHECK(urgent->end_s == Approx(2));
    } else {
      REQUIRE_FALSE(urgent);
      CHECK(urgent.error() == decline_reason::no_bubble_before_deadline);
    }
  }
}

TEST_CASE("a prompt passes those of a smaller priority, whatever was promised before or after") {
  const std::vector<idle_windows> w{{{0, 100}}, {{0, 100}}};
  for (const bool urgent_first : {false, true}) {
    prefill_packing p{by(packing_rule::resumable), {alone(0), alone(1)}, w};
    const auto admit_urgent = [&] {
      CHECK(p.admit(prompt(3, 0, 1000, never, 2), 0)->end_s == Approx(1));
    };
    if (urgent_first) admit_urgent();
    REQUIRE(p.admit(prompt(1, 0, 10'000), 0));
    REQUIRE(p.admit(prompt(2, 0, 10'000), 0));
    if (!urgent_first) admit_urgent();
    const auto between = p.admit(prompt(4, 0, 2000, 5, 1), 0);
    REQUIRE(between);
    CHECK(between->end_s == Approx(2));
  }
}

TEST_CASE("a prompt that has begun is not put behind another one") {
  prefill_packing p{by(packing_rule::resumable), {alone(0, 10)}, {{{0, 100}}}};
  REQUIRE(p.admit(prompt(1, 0, 1000), 0));
  REQUIRE(p.next(0, 0).piece);
  CHECK(p.admit(prompt(2, 0.1, 1000, never, 9), 0.1)->end_s == Approx(2));
}

TEST_CASE("a second guest begins a tile when it has come over the hop") {
  prefill_group g{{{0, 0, 1, {1e-3, 0, 0}}, {1, 1, 1, {1e-3, 0, 0}}}, 1e-4, 0.05};
  prefill_packing p{by(packing_rule::chunked), {g}, {{{0, 100}}, {{0, 100}}}};
  // Two chunks of a second; each takes 0.15 to the second guest.
  CHECK(p.admit(prompt(1, 0, 2000), 0)->end_s == Approx(3.15));
  auto piece = p.next(0, 0).piece;
  REQUIRE(piece);
  CHECK_FALSE(p.next(1, 0).piece);
  CHECK_FALSE(p.ended(*piece));
  CHECK(p.device_after(*piece) == 1u);
  CHECK(p.next(1, 1).again_s == Approx(1.15));
}

TEST_CASE("each decline says why") {
  const auto declined = [](const packing_options& o, std::vector<prefill_group> groups,
                           const prefill_prompt& r, double now_s = 0, std::uint32_t cache = 0) {
    prefill_packing p{o, std::move(groups), {two_bubbles}, cache};
    const auto answer = p.admit(r, now_s);
    REQUIRE_FALSE(answer);
    return to_string(answer.error());
  };
  auto o = by(packing_rule::whole);
  CHECK(declined(o, {}, prompt(1, 0, 1)) == "no_guest_for_model");
  CHECK(declined(o, {alone(0)}, prompt(1, 100, 1), 100) == "timetable_unknown");
  CHECK(declined(o, {alone(0)}, prompt(1, 0, 90'001)) == "too_long");
  CHECK(declined(o, {alone(0)}, prompt(1, 0, 2500, 5.4)) == "no_bubble_before_deadline");
  CHECK(declined(o, {alone(0)}, prompt(1, 0, 2500), 0, 2499) == "guest_memory");
  o.max_tokens = 100;
  CHECK(declined(o, {alone(0)}, prompt(1, 0, 101)) == "too_long");
  o.max_tokens = 0;
  o.max_promised = 1;
  prefill_packing p{o, {alone(0)}, {two_bubbles}};
  REQUIRE(p.admit(prompt(1, 0, 100), 0));
  CHECK(p.admit(prompt(2, 0, 100), 0).error() == decline_reason::queue_full);
  CHECK(to_string(decline_reason::queue_full) == "queue_full");
  // That prompt would be late in any case.
  CHECK(p.admit(prompt(2, 0, 1000, 0.9), 0).error() == decline_reason::no_bubble_before_deadline);
  const auto piece = p.next(0, 0).piece;
  REQUIRE(piece);
  CHECK(p.ended(*piece));
  CHECK(p.promised() == 0);
  CHECK(p.admit(prompt(3, 0.1, 100), 0.1));
}

TEST_CASE("the upper bound is what prompts of these lengths could fill") {
  const idle_windows w{{0, 2}, {3, 6}};
  CHECK(packing_bound_s(packing_rule::resumable, w, {1.5}) == 5);
  CHECK(packing_bound_s(packing_rule::chunked, w, {}) == 5);
  CHECK(packing_bound_s(packing_rule::whole, w, {2.5}) == Approx(2.5).margin(0.01));
  CHECK(packing_bound_s(packing_rule::look_ahead, w, {1.5, 2.5}) == Approx(4).margin(0.01));
  CHECK(packing_bound_s(packing_rule::whole, w, {1.5, 0.5}) == Approx(4).margin(0.01));
  CHECK(packing_bound_s(packing_rule::whole, w, {7}) == 0);
  const std::vector<double> equal(10, 0.3);
  const double bound = packing_bound_s(packing_rule::whole, {{4, 5}}, equal);
  CHECK(bound >= 0.9);
  CHECK(bound <= 0.903 + 1e-9);  // a thousandth of the window for each that fits
}
