#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "bubbletea/prefill_replay.hpp"
#include "packing_oracle.hpp"
#include "planners/bubbletea/bubble_filling.hpp"
#include "planners/bubbletea/packing_bound.hpp"
#include "random_packing.hpp"

using namespace troupe;
using namespace troupe::planners;
using namespace bubbletea;

namespace {

constexpr double near = 1e-6;

/// The best group for a request behind all that are promised, by trying every group.
struct best_of_all {
  double begin_s = never, end_s = never;
};

best_of_all try_all_groups(const sample::packing_case& x,
                           const std::vector<std::vector<packing_oracle::known_request>>& promised,
                           const prefill_prompt& r, double from_s) {
  best_of_all best;
  const bool whole = x.options.rule == packing_rule::whole;
  for (std::size_t g = 0; g < x.groups.size(); ++g) {
    auto order = promised[g];
    order.push_back({r, from_s});
    const auto out = packing_oracle::carry_out(x.groups[g], x.windows, order, x.options).back();
    if (out.end_s > r.latest_s + near) continue;
    const auto better =
        whole ? std::pair{out.begin_s, out.end_s} < std::pair{best.begin_s, best.end_s}
              : out.end_s < best.end_s;
    if (out.end_s < never && better) best = {out.begin_s, out.end_s};
  }
  return best;
}

// ---- what must hold of every replay

void check_every_request_ends_once(const sample::packing_case& x, const prefill_replay& done) {
  REQUIRE(done.offered == x.requests.size());
  REQUIRE(done.served.size() + done.all_declined() == done.offered);
  std::vector<int> ends(x.requests.size(), 0);
  for (const auto& s : done.served) ++ends[s.id];
  REQUIRE(std::ranges::all_of(ends, [](int n) { return n <= 1; }));
}

void check_promises_are_kept(const sample::packing_case& x, const prefill_replay& done) {
  const bool exactly = !sample::may_overtake(x);
  for (const auto& s : done.served) {
    REQUIRE(s.end_s <= x.requests[s.id].latest_s + near);
    if (exactly) REQUIRE(std::abs(s.end_s - s.promised_s) < near);
  }
}

/// Directly by the training's steps, not by windows.
void check_devices_do_one_thing_and_training_is_on_time(const sample::packing_case& x,
                                                        const prefill_replay& done) {
  for (std::size_t d = 0; d < done.pieces.size(); ++d) {
    double free = 0;
    for (const auto& p : done.pieces[d]) {
      REQUIRE(p.device == d);
      REQUIRE(p.begin_s >= free - near);
      REQUIRE(p.end_s > p.begin_s);
      free = p.end_s;
      const double middle = (p.begin_s + p.end_s) / 2;
      REQUIRE_FALSE(sample::is_busy(x.times, d, p.begin_s + near));
      REQUIRE_FALSE(sample::is_busy(x.times, d, middle));
      REQUIRE(p.end_s + x.guard_s <= sample::next_begin(x.times, d, p.begin_s + near) + near);
    }
  }
}

/// Every operation runs once, in order, and after its input has come.
void check_prompts_are_whole(const sample::packing_case& x, const prefill_replay& done) {
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::vector<prefill_piece>> of_guest;
  for (const auto& pieces : done.pieces)
    for (const auto& p : pieces) of_guest[{p.request, p.guest}].push_back(p);
  for (const auto& s : done.served) {
    const auto& group = x.groups[s.group];
    const auto w = work_of(group, s.tokens, x.options);
    std::vector<double> ready(w.hop_s.size(), s.arrival_s);
    for (std::uint32_t g = 0; g < group.guests.size(); ++g) {
      std::vector<std::uint32_t> operations(w.hop_s.size(), 0);
      std::vector<double> ended(w.hop_s.size(), 0);
      std::uint32_t tile = 0;
      for (const auto& p : of_guest[{s.id, g}]) {
        REQUIRE(p.device == group.guests[g].device);
        REQUIRE(p.tile >= tile);
        tile = p.tile;
        REQUIRE(p.begin_s >= ready[tile] - near);
        REQUIRE(p.end_s - p.begin_s == Approx(p.operations * w.guests[g][tile].each_s));
        operations[tile] += p.operations;
        ended[tile] = p.end_s;
      }
      for (std::size_t i = 0; i < ready.size(); ++i) {
        REQUIRE(operations[i] == w.guests[g][i].count);
        ready[i] = ended[i] + w.hop_s[i];
      }
    }
  }
}

void check_bound(const sample::packing_case& x, const prefill_replay& done) {
  for (const auto& group : x.groups)
    for (std::size_t g = 0; g < group.guests.size(); ++g) {
      const auto device = group.guests[g].device;
      std::vector<double> offered;
      for (const auto& r : x.requests) {
        const auto w = work_of(group, r.tokens, x.options);
        offered.push_back(std::accumulate(
            w.guests[g].begin(), w.guests[g].end(), 0.0,
            [](double sum, const auto& run) { return sum + run.count * run.each_s; }));
      }
      const double bound = packing_bound_s(x.options.rule, x.windows[device], offered);
      REQUIRE(total_s(done.used(device)) <= bound + near);
      REQUIRE(bound <= total_s(x.windows[device]) + near);
    }
}

}  // namespace

TEST_CASE("a promise is the best of all groups, and a request is declined if there is none") {
  random_source random{71};
  int promises = 0, declines = 0;
  for (int i = 0; i < 1500; ++i) {
    auto x = sample::random_packing(random);
    if (x.options.rule == packing_rule::look_ahead) x.options.rule = packing_rule::resumable;
    for (auto& r : x.requests) r.priority = 0;
    std::ranges::sort(x.requests, {}, &prefill_prompt::latest_s);
    std::vector<double> arrivals;
    for (const auto& r : x.requests) arrivals.push_back(r.arrival_s);
    std::ranges::sort(arrivals);
    x.options.max_promised = 0;
    auto packing = x.packing();
    std::vector<std::vector<packing_oracle::known_request>> promised(x.groups.size());
    double last_begin = 0;
    for (std::size_t k = 0; k < x.requests.size(); ++k) {
      auto r = x.requests[k];
      r.id = k;
      r.arrival_s = arrivals[k];
      const bool whole = x.options.rule == packing_rule::whole;
      const double from = whole ? std::max(r.arrival_s, last_begin) : r.arrival_s;
      const auto best = try_all_groups(x, promised, r, from);
      const auto answer = packing.admit(r, r.arrival_s);
      INFO("case " << i << ", request " << k << ", rule " << to_string(x.options.rule));
      REQUIRE(answer.has_value() == (best.end_s < never));
      if (!answer) {
        ++declines;
        continue;
      }
      ++promises;
      REQUIRE(std::abs(answer->end_s - best.end_s) < near);
      promised[answer->group].push_back({r, from});
      last_begin = best.begin_s;
    }
  }
  CHECK(promises > 5000);
  CHECK(declines > 500);
}

TEST_CASE(
    "of 10,000 random packings none breaks a promise, delays training or uses a device twice") {
  random_source random{73};
  std::uint64_t served = 0, declined = 0;
  for (int i = 0; i < 10'000; ++i) {
    const auto x = sample::random_packing(random);
    INFO("case " << i << ", rule " << to_string(x.options.rule));
    const auto done = replay_prefills(x.packing(), x.windows.size(), x.requests);
    check_every_request_ends_once(x, done);
    check_promises_are_kept(x, done);
    check_devices_do_one_thing_and_training_is_on_time(x, done);
    check_prompts_are_whole(x, done);
    check_bound(x, done);
    served += done.served.size();
    declined += done.all_declined();
  }
  CHECK(served > 20'000);
  CHECK(declined > 5'000);
}

TEST_CASE("a saturated packing keeps the same rules") {
  random_source random{79};
  for (int i = 0; i < 300; ++i) {
    auto x = sample::random_packing(random);
    x.options.max_promised = 0;
    for (auto& r : x.requests) r.latest_s = never, r.priority = 0;
    const auto until = x.until_s / 2;
    const auto done = replay_prefills(x.packing(), x.windows.size(), x.requests, {4, until});
    x.requests.clear();
    std::vector<prefill_prompt> offered(done.offered);
    x.requests = offered;
    INFO("case " << i << ", rule " << to_string(x.options.rule));
    REQUIRE(done.served.size() + done.all_declined() == done.offered);
    check_devices_do_one_thing_and_training_is_on_time(x, done);
    check_prompts_are_whole(x, done);
  }
}

TEST_CASE("a bubble is filled nearly as well as by the best subset, and never beyond its end") {
  random_source random{83};
  double sum = 0, min = 1;
  constexpr int cases = 2000;
  for (int i = 0; i < cases; ++i) {
    std::vector<double> times(1 + random.below(11));
    for (auto& t : times) t = 0.01 + random.uniform() * random.uniform();
    const double room = 0.1 + 2 * random.uniform();
    double best = 0;
    for (std::uint32_t set = 0; set < 1u << times.size(); ++set) {
      double taken = 0;
      for (std::size_t k = 0; k < times.size(); ++k) taken += set >> k & 1 ? times[k] : 0;
      if (taken <= room) best = std::max(best, taken);
    }
    const auto chosen = fill_bubble(room, times);
    REQUIRE(std::ranges::is_sorted(chosen));
    double taken = 0;
    for (const auto k : chosen) taken += times[k];
    REQUIRE(taken <= room + 1e-12);
    REQUIRE((best == 0) == chosen.empty());
    // The bound for rule whole is never below the best subset.
    REQUIRE(packing_bound_s(packing_rule::whole, {{5, 5 + room}}, times) >= best - 1e-9);
    if (best == 0) continue;
    sum += taken / best;
    min = std::min(min, taken / best);
  }
  CHECK(sum / cases > 0.97);
  CHECK(min > 0.6);
}
