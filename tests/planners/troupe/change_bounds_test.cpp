// Jobs that a decision leaves as they are by a bound, against a look at all of their options.

#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>

#include "messages/base/random.hpp"
#include "planners/troupe/change_bounds.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

constexpr double restart_s = 30;

/// A job with some options of three pools, and what its time costs.
struct some_job {
  job_view view;
  configuration_table table;
  contender x;
  std::vector<double> prices{0, 0, 0};
  double load = 0, weight = 1;
};

some_job random_job(random_source& r) {
  some_job j;
  std::vector<configuration> options;
  const double unit = r.chance(0.5) ? 1 : 0.25;  // few different values: equal costs, too
  for (std::uint32_t pool = 0; pool < 3; ++pool) {
    const double speed = 1 + double(r.below(4));
    double rate = 0;
    for (std::uint32_t gpus = 1; gpus <= 8 && r.chance(0.8); gpus *= 2) {
      configuration o;
      o.pool = pool;
      o.gpus = gpus;
      o.weight = speed * gpus;
      o.how.samples_per_s = rate += unit * double(1 + r.below(8));
      o.guess = r.chance(0.2);
      options.push_back(std::move(o));
    }
  }
  if (options.empty()) options.push_back({0, {}, 1, 1, false}), options[0].how.samples_per_s = 1;
  set_options(j.table, std::move(options));
  for (const auto& f : j.table.figures)
    j.table.fastest_samples_per_s = std::max(j.table.fastest_samples_per_s, f.samples_per_s);
  auto& x = j.x;
  x.restart_s = restart_s;
  x.samples_left = double(1 + r.below(r.chance(0.5) ? 50 : 20'000));
  if (r.chance(0.3)) x.guess_slowdown = r.chance(0.5) ? 2 : 0.5;
  x.is_running = r.chance(0.8);
  if (x.is_running && r.chance(0.9)) x.present = r.below(j.table.figures.size());
  if (x.is_running) x.start_left_s = r.chance(0.5) ? 0 : restart_s * r.uniform();
  for (auto& p : j.prices) p = r.chance(0.3) ? 0 : 0.2 * double(r.below(10));
  j.load = r.chance(0.3) ? 0 : r.uniform();
  j.weight = double(1 + r.below(200));
  return j;
}

/// docs/planners/troupe.md, "The decision".
double cost(const some_job& j, std::size_t option, double price) {
  const troupe_options o;
  const auto& f = j.table.figures[option];
  const double start_s =
      j.x.present == option ? j.x.start_left_s : restart_s * (j.x.is_running ? o.stop_cost : 1);
  const double left = f.guess ? j.x.samples_left : j.x.samples_left / j.x.guess_slowdown;
  const double t = left / f.samples_per_s + start_s;
  const double load = std::min(j.load, o.max_load);
  const double a = o.arriving * (load * load / (1 - load)) / j.weight;
  return t * (1 + price * f.weight) + a * std::min(t, o.hold_restarts * restart_s) * f.weight;
}

}  // namespace

TEST_CASE("a job that a bound leaves as it is has no better option") {
  random_source r{57};
  const troupe_options o;
  cluster c;
  c.settings.restart_s = restart_s;
  std::size_t cheapest = 0, cheap = 0, fast = 0, fast_enough = 0;
  for (int i = 0; i < 100'000; ++i) {
    CAPTURE(i);
    auto j = random_job(r);
    j.x.job = &j.view;
    j.x.table = &j.table;
    const job_costs costs{c, j.weight, j.load, o};
    const auto options = j.table.figures.size();
    // The first of the cheapest.
    std::size_t best = 0;
    const auto waiting = [&](std::size_t k) { return j.prices[j.table.figures[k].pool]; };
    for (std::size_t k = 1; k < options; ++k)
      if (cost(j, k, waiting(k)) < cost(j, best, waiting(best))) best = k;
    const bool left_alone = is_cheapest_as_it_is(j.x, j.prices, costs, o);
    cheapest += j.x.present == best;
    cheap += left_alone;
    if (left_alone) REQUIRE(j.x.present == best);
    // A change that saves more than rule 3 asks for.
    const auto has = j.x.present && r.chance(0.7) ? *j.x.present : r.below(options);
    const double now = cost(j, has, 0);
    bool saves = false;
    for (std::size_t k = 0; k < options; ++k)
      saves = saves || (k != has && now - cost(j, k, 0) > o.min_saving * now);
    const bool kept = is_fast_enough(j.x, has, costs, o);
    fast += !saves;
    fast_enough += kept;
    if (kept) REQUIRE(!saves);
  }
  CHECK(cheap > 20'000);
  CHECK(cheapest > cheap);
  CHECK(fast_enough > 20'000);
  CHECK(fast > fast_enough);
}
