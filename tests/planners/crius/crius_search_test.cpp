#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <set>

#include "messages/base/random.hpp"
#include "planners/crius/crius_search.hpp"

// Crius' search among scheduling choices against trying all of them.

using namespace troupe;
using namespace troupe::planners;

namespace {

struct search_case : scheduling_problem {
  std::vector<cell_choice> arrival;
};

search_case random_problem(random_source& r) {
  search_case p;
  const auto pools = 1 + r.below(3);
  for (std::size_t i = 0; i < pools; ++i) p.idle.push_back(static_cast<std::uint32_t>(r.below(5)));
  const auto choice = [&] {
    return cell_choice{static_cast<std::uint32_t>(r.below(pools)), 1U << r.below(4),
                       0.1 + r.uniform()};
  };
  const auto jobs = r.below(7);
  for (std::size_t j = 0; j < jobs; ++j) {
    auto& job = p.running.emplace_back();
    job.present = choice();
    for (auto n = r.below(5); n > 0; --n) {
      const auto other = choice();
      const auto same = [&](const cell_choice& x) {
        return x.pool == other.pool && x.gpus == other.gpus;
      };
      if (!same(job.present) && std::ranges::none_of(job.others, same)) job.others.push_back(other);
    }
  }
  if (r.chance(0.8))
    for (auto n = 1 + r.below(4); n > 0; --n) p.arrival.push_back(choice());
  return p;
}

/// The most gain of any choice with at most `depth` rescalings; 0: no choice gains.
double max_gain(const search_case& p, std::uint32_t depth) {
  double max = 0;
  std::vector<std::int64_t> slack(p.idle.begin(), p.idle.end());
  const std::function<void(std::size_t, std::uint32_t, double)> go =
      [&](std::size_t job, std::uint32_t left, double gain) {
        if (job == p.running.size()) {
          if (std::ranges::all_of(slack, [](auto n) { return n >= 0; })) max = std::max(max, gain);
          return;
        }
        go(job + 1, left, gain);
        if (left == 0) return;
        const auto& x = p.running[job];
        for (const auto& to : x.others) {
          slack[x.present.pool] += x.present.gpus;
          slack[to.pool] -= to.gpus;
          go(job + 1, left - 1, gain + to.value - x.present.value);
          slack[to.pool] += to.gpus;
          slack[x.present.pool] -= x.present.gpus;
        }
      };
  if (p.arrival.empty()) go(0, depth, 0);
  for (const auto& a : p.arrival) {
    slack[a.pool] -= a.gpus;
    go(0, depth, a.value);
    slack[a.pool] += a.gpus;
  }
  return max;
}

/// The gain of a choice, which must keep to the GPUs that there are.
double gain_of(const search_case& p, const scheduling_choice& c) {
  std::vector<std::int64_t> slack(p.idle.begin(), p.idle.end());
  double gain = 0;
  std::set<std::uint32_t> jobs;
  for (const auto& r : c.rescalings) {
    const auto& from = p.running[r.job].present;
    const auto& to = p.running[r.job].others[r.choice];
    CHECK(jobs.insert(r.job).second);
    slack[from.pool] += from.gpus;
    slack[to.pool] -= to.gpus;
    gain += to.value - from.value;
  }
  REQUIRE(c.arrival.has_value() == !p.arrival.empty());
  if (c.arrival) {
    slack[p.arrival[*c.arrival].pool] -= p.arrival[*c.arrival].gpus;
    gain += p.arrival[*c.arrival].value;
  }
  CHECK(std::ranges::all_of(slack, [](auto n) { return n >= 0; }));
  return gain;
}

std::optional<scheduling_choice> search(const search_case& p, std::uint32_t depth) {
  std::uint64_t steps = 10'000'000;
  return scheduling_search{p, depth}.best(p.arrival, steps);
}

}  // namespace

TEST_CASE("the search finds the best choice at every depth") {
  random_source r{21};
  int found = 0, none = 0, deep = 0;
  for (int i = 0; i < 600; ++i) {
    const auto p = random_problem(r);
    double before = 0;
    for (std::uint32_t depth = 0; depth <= 4; ++depth) {
      INFO("case " << i << ", depth " << depth);
      const auto best = search(p, depth);
      const double max = max_gain(p, depth);
      REQUIRE(best.has_value() == (max > 1e-9));
      ++(best ? found : none);
      if (!best) continue;
      CHECK(best->rescalings.size() <= depth);
      CHECK(best->gain == Approx(max).epsilon(1e-9));
      CHECK(gain_of(p, *best) == Approx(best->gain).epsilon(1e-9));
      CHECK(best->gain >= before - 1e-12);
      deep += best->gain > before + 1e-9 && depth > 1 && before > 0;
      before = best->gain;
    }
  }
  CHECK(found > 1000);
  CHECK(none > 100);
  CHECK(deep > 100);
}

TEST_CASE("a search prepared for one arrival is right for every later arrival") {
  random_source r{23};
  int some = 0;
  for (int i = 0; i < 200; ++i) {
    auto p = random_problem(r);
    const std::uint32_t depth = static_cast<std::uint32_t>(r.below(4));
    scheduling_search all{p, depth};
    for (int k = 0; k < 8; ++k) {
      p.arrival.clear();
      for (auto n = r.below(4); n > 0; --n)
        p.arrival.push_back({static_cast<std::uint32_t>(r.below(p.idle.size())), 1U << r.below(4),
                             3 * r.uniform()});
      std::uint64_t steps = 10'000'000;
      const auto best = all.best(p.arrival, steps);
      const double max = max_gain(p, depth);
      INFO("case " << i << ", arrival " << k);
      REQUIRE(best.has_value() == (max > 1e-9));
      if (!best) continue;
      ++some;
      CHECK(best->gain == Approx(max).epsilon(1e-9));
      CHECK(gain_of(p, *best) == Approx(best->gain).epsilon(1e-9));
    }
  }
  CHECK(some > 500);
}

TEST_CASE("the search stays within its effort, and returns the best choice so far") {
  random_source r{22};
  int cut = 0, better = 0, none_yet = 0;
  for (int i = 0; i < 100; ++i) {
    const auto p = random_problem(r);
    constexpr std::uint64_t plenty = 10'000'000;
    auto steps = plenty;
    const auto full = scheduling_search{p, 3}.best(p.arrival, steps);
    const auto needed = plenty - steps;
    double before = 0;
    for (std::uint64_t effort = 0; effort <= needed + 1; effort += 1 + effort / 4) {
      INFO("case " << i << ", " << effort << " of " << needed << " steps");
      steps = effort;
      const auto found = scheduling_search{p, 3}.best(p.arrival, steps);
      CHECK(steps == effort - std::min(effort, needed));
      const double gain = found ? found->gain : 0;
      if (found) CHECK(gain_of(p, *found) == Approx(gain).epsilon(1e-9));
      CHECK(gain >= before - 1e-12);
      cut += found && gain < full->gain - 1e-9;
      none_yet += full && !found;
      better += before > 0 && gain > before + 1e-9;
      before = gain;
    }
    steps = needed;
    const auto exact = scheduling_search{p, 3}.best(p.arrival, steps);
    REQUIRE(exact.has_value() == full.has_value());
    if (full) CHECK(exact->gain == full->gain);
  }
  CAPTURE(cut, better, none_yet);
  CHECK(cut > 100);
  CHECK(better > 50);
  CHECK(none_yet > 10);
}
