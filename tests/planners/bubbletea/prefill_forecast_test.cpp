#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <vector>

#include "messages/base/time.hpp"
#include "planners/bubbletea/prefill_forecast.hpp"
#include "random_packing.hpp"

// Promises when windows are known for a while only, move, and prompts end otherwise than planned.

namespace {

using namespace sample;
using Catch::Matchers::WithinAbs;
using troupe::never;

/// Groups of one device each, whose prompts take a second for each 100 tokens.
std::vector<prefill_group> single_devices(std::uint32_t devices) {
  std::vector<prefill_group> groups;
  for (std::uint32_t d = 0; d < devices; ++d) groups.push_back({{{d, 0, 1, {0.01, 0, 0}}}, 0, 0});
  return groups;
}

packing_options in_order() {
  packing_options o;
  o.rule = packing_rule::resumable;
  o.op_s = 1e-3;
  o.in_order = true;
  return o;
}

prefill_prompt prompt(std::uint64_t id, std::uint32_t tokens, double now_s,
                      double latest_s = never) {
  prefill_prompt p;
  p.id = id;
  p.arrival_s = now_s;
  p.tokens = tokens;
  p.latest_s = latest_s;
  return p;
}

/// One device, busy in [0, 10) of every 20 seconds from `origin_s` on.
struct half_busy {
  prefill_forecast forecast{in_order(), single_devices(1), 1, 0};
  void know(double origin_s, double now_s) {
    forecast.set_windows(0, repeated_windows({{0, 10}}, 20, origin_s, now_s - 20, now_s + 200, 0),
                         now_s);
  }
};

}  // namespace

TEST_CASE("windows repeat around the times at which a device is busy") {
  const idle_windows busy{{1, 2}, {2, 3}, {6, 11}};  // of ten seconds: into the next ones
  const auto all = repeated_windows(busy, 10, 100, 103, 126, 0.5);
  const idle_windows expected{{103, 105.5}, {113, 115.5}, {123, 125.5}};
  CHECK(all == expected);
  CHECK(repeated_windows({{0, 1}}, 10, 3, 0, 10, 0) == idle_windows{{0, 3}, {4, 10}});
  CHECK(repeated_windows({{0, 1}}, 10, 30, 0, 10, 0) == idle_windows{{1, 10}});
}

TEST_CASE("a device without windows promises nothing") {
  prefill_forecast f{in_order(), single_devices(1), 1, 0};
  const auto none = f.admit(prompt(1, 64, 0), 0);
  REQUIRE(!none);
  CHECK(none.error() == decline_reason::timetable_unknown);
}

TEST_CASE("windows that become known later change no promise") {
  random_source r{7};
  std::size_t compared = 0;
  for (int n = 0; n < 600; ++n) {
    auto x = random_packing(r);
    if (x.options.rule == packing_rule::look_ahead) continue;
    x.options.in_order = true;
    x.options.max_promised = 0;
    for (auto& q : x.requests) q.latest_s = never, q.priority = 0;
    prefill_forecast whole{x.options, x.groups, x.windows.size(), 0};
    prefill_forecast rolling{x.options, x.groups, x.windows.size(), 0};
    const auto know = [&](prefill_forecast& f, double from_s, double to_s, double now_s) {
      for (std::uint32_t d = 0; d < x.windows.size(); ++d)
        f.set_windows(
            d, repeated_windows(busy_times(x.times, d), x.times.length, 0, from_s, to_s, x.guard_s),
            now_s);
    };
    know(whole, 0, 1000 * x.times.length, 0);
    for (const auto& q : x.requests) {
      const double now_s = q.arrival_s, back_s = x.times.length * (1 + r.uniform());
      know(rolling, now_s - back_s, now_s + 500 * x.times.length, now_s);
      const auto a = whole.admit(q, now_s), b = rolling.admit(q, now_s);
      REQUIRE(a.has_value() == b.has_value());
      if (!a) continue;
      ++compared;
      INFO("case " << n << ", prompt " << q.id);
      REQUIRE_THAT(b->end_s, WithinAbs(a->end_s, 1e-6));
      if (a->group != b->group) break;  // as soon in both
    }
  }
  CHECK(compared > 1000);
}

TEST_CASE("windows that move take the plan with them") {
  half_busy x;
  x.know(0, 0);
  CHECK_THAT(x.forecast.admit(prompt(1, 640, 0), 0)->end_s, WithinAbs(16.4, 1e-9));
  CHECK_THAT(x.forecast.admit(prompt(2, 640, 0), 0)->end_s, WithinAbs(33.2, 1e-6));
  // At 12 the device reports that its iteration began at 5: it is busy until 15. Three operations
  // had ended; the fourth begins again.
  x.know(5, 12);
  CHECK_THAT(x.forecast.admit(prompt(3, 64, 12), 12)->end_s, WithinAbs(36.92, 1e-6));
}

TEST_CASE("a prompt that is over leaves its time to others") {
  half_busy x;
  x.know(0, 0);
  REQUIRE(x.forecast.admit(prompt(1, 640, 0), 0));
  REQUIRE(x.forecast.admit(prompt(2, 640, 0), 0));
  REQUIRE(x.forecast.admit(prompt(3, 64, 0), 0));
  CHECK(x.forecast.promised() == 3);
  SECTION("the first one, while it runs") {
    x.forecast.over(1, 12);
    CHECK_THAT(x.forecast.admit(prompt(4, 64, 12), 12)->end_s, WithinAbs(19.68, 1e-6));
  }
  SECTION("the second one, before it has begun") {
    x.forecast.over(2, 12);
    CHECK_THAT(x.forecast.admit(prompt(4, 64, 12), 12)->end_s, WithinAbs(17.68, 1e-6));
  }
  SECTION("all") {
    for (const auto id : {3, 1, 2}) x.forecast.over(id, 12);
    CHECK(x.forecast.promised() == 0);
    CHECK_THAT(x.forecast.admit(prompt(4, 64, 12), 12)->end_s, WithinAbs(12.64, 1e-6));
  }
  SECTION("one that nobody knows") {
    x.forecast.over(17, 12);
    CHECK(x.forecast.promised() == 3);
  }
}

TEST_CASE("a group that is late is as late for the next prompt") {
  half_busy x;
  x.know(0, 0);
  REQUIRE(x.forecast.admit(prompt(1, 64, 0), 0));
  x.forecast.late(0, 2, 12);
  CHECK_THAT(x.forecast.admit(prompt(2, 64, 12), 12)->end_s, WithinAbs(14.64, 1e-6));
}

TEST_CASE("a guest slower than planned delays new promises and those already made") {
  half_busy x;
  x.know(0, 0);
  REQUIRE(x.forecast.admit(prompt(1, 128, 0), 0));
  x.forecast.set_factor(0, 2, 1);
  CHECK_THAT(x.forecast.admit(prompt(2, 64, 1), 1)->end_s, WithinAbs(10 + 2 * 1.92, 1e-6));
  x.forecast.set_factor(0, 1, 1);
  CHECK_THAT(x.forecast.admit(prompt(3, 64, 1), 1)->end_s, WithinAbs(10 + 2.56, 1e-6));
  // At 11 the first 64 tokens have ended. 64 take 6.4 s now, in sixteen parts: the second ones end
  // at 17.04, prompt 2 at 33.6 and prompt 3 at 40.
  x.forecast.set_factor(0, 10, 11);
  CHECK_THAT(x.forecast.admit(prompt(4, 64, 11), 11)->end_s, WithinAbs(56.4, 1e-6));
}

TEST_CASE("promises after a correction are those of groups that were known to be as slow") {
  random_source r{11};
  std::size_t compared = 0;
  for (int n = 0; n < 300; ++n) {
    auto x = random_packing(r);
    x.options.in_order = true;
    x.options.max_promised = 0;
    x.options.op_s = 0;  // the tiles do not depend on the rates
    x.options.per_layer = 16;
    auto slow = x.groups;
    std::vector<double> factors(x.windows.size(), 1.0);
    for (auto& g : slow)
      for (auto& guest : g.guests) {
        const double f = factors[guest.device] = 0.1 + 2 * r.uniform();
        guest.rate.token_s *= f;
        guest.rate.pair_s *= f;
      }
    prefill_packing known{x.options, slow, x.windows, 0};
    prefill_packing corrected{x.options, x.groups, x.windows, 0};
    for (std::uint32_t d = 0; d < factors.size(); ++d) corrected.set_factor(d, factors[d], 0);
    for (const auto& q : x.requests) {
      const auto a = known.admit(q, q.arrival_s), b = corrected.admit(q, q.arrival_s);
      INFO("case " << n << ", prompt " << q.id);
      REQUIRE(a.has_value() == b.has_value());
      if (!a) continue;
      REQUIRE_THAT(b->end_s, WithinAbs(a->end_s, 1e-6));
      if (a->group != b->group) break;  // as soon in both
      ++compared;
    }
  }
  CHECK(compared > 300);
}

TEST_CASE("a forecast says which prompts have begun, once") {
  half_busy x;
  x.know(0, 0);
  REQUIRE(x.forecast.admit(prompt(1, 320, 0), 0));
  REQUIRE(x.forecast.admit(prompt(2, 320, 0), 0));
  CHECK(x.forecast.take_begun(0).empty());
  CHECK_THAT(x.forecast.next_event_s(), WithinAbs(10, 1e-9));
  const auto first = x.forecast.take_begun(10.5);
  REQUIRE(first.size() == 1);
  CHECK(first[0].id == 1);
  CHECK_THAT(first[0].end_s, WithinAbs(13.2, 1e-6));
  const auto second = x.forecast.take_begun(14);
  REQUIRE(second.size() == 1);
  CHECK(second[0].id == 2);
  CHECK_THAT(second[0].end_s, WithinAbs(16.4, 1e-6));
  CHECK(x.forecast.take_begun(100).empty());
}

TEST_CASE("promises of prompts that end early or never are kept by the others") {
  random_source r{11};
  for (int n = 0; n < 400; ++n) {
    auto x = random_packing(r);
    x.options.in_order = x.options.rule != packing_rule::look_ahead;
    prefill_forecast f{x.options, x.groups, x.windows.size(), 0};
    for (std::uint32_t d = 0; d < x.windows.size(); ++d) f.set_windows(d, x.windows[d], 0);
    std::vector<std::uint64_t> promised;
    for (const auto& q : x.requests) {
      if (f.admit(q, q.arrival_s)) promised.push_back(q.id);
      if (!promised.empty() && r.chance(0.4)) {
        const auto i = r.below(promised.size());
        f.over(promised[i], q.arrival_s);
        promised.erase(promised.begin() + static_cast<std::ptrdiff_t>(i));
      }
      if (r.chance(0.3)) {
        const auto d = static_cast<std::uint32_t>(r.below(x.windows.size()));
        f.set_windows(d,
                      repeated_windows(busy_times(x.times, d), x.times.length,
                                       (r.uniform() - 0.5) * x.times.length,
                                       q.arrival_s - x.times.length, x.until_s, x.guard_s),
                      q.arrival_s);
      }
    }
    const double last_s = x.requests.back().arrival_s;
    for (const auto id : promised) f.over(id, last_s);
    REQUIRE(f.promised() == 0);
  }
}
