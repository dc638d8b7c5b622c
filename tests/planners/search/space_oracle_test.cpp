#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "messages/base/random.hpp"
#include "planners/search/random_space.hpp"
#include "planners/search/space/space_bound.hpp"
#include "planners/search/space/space_search.hpp"
#include "planners/search/space_oracle.hpp"

// The search beside an oracle that shares only the plan's value with it.

using namespace troupe;
using namespace troupe::planners;
using troupe::harness::random_space, troupe::harness::space_oracle;

namespace {

/// Pools of which all plans are few enough for the oracle, with the search's answer.
struct judged_pool {
  random_space space;
  space_result found;
  double best = 0;
};

std::vector<judged_pool> judged_pools(std::uint64_t seed, std::size_t wanted) {
  random_source rng{seed};
  std::vector<judged_pool> out;
  while (out.size() < wanted) {
    random_space space{rng};
    planning_budget budget{6'000'000};  // 30,000 plans
    auto found = search_space(space.problem, space, 1, budget);
    if (!found.exact) continue;
    space_oracle oracle{space.problem, space};
    const double best = oracle.best();
    out.push_back({std::move(space), std::move(found), best});
  }
  return out;
}

}  // namespace

TEST_CASE("the search finds what an exhaustive oracle finds on 200 random pools") {
  constexpr double never = std::numeric_limits<double>::infinity();
  std::size_t with_plan = 0;
  for (const auto& j : judged_pools(60, 200)) {
    CAPTURE(j.space.problem.space.name, j.found.valued, j.best);
    if (!(j.best < never)) {
      CHECK(j.found.plans.empty());
      continue;
    }
    ++with_plan;
    REQUIRE(!j.found.plans.empty());
    CHECK(j.found.plans[0].score == Approx(j.best).epsilon(1e-9));
  }
  CHECK(with_plan > 120);
}

TEST_CASE("the bound is never above the optimum that an exhaustive oracle finds") {
  constexpr double never = std::numeric_limits<double>::infinity();
  std::size_t bounded = 0;
  double gaps = 0;
  for (const auto& j : judged_pools(61, 200)) {
    planning_budget budget{2'000'000};
    const double bound = score_bound(j.space.problem, j.space, j.best, budget);
    CAPTURE(j.space.problem.space.name, j.best, bound);
    CHECK(bound <= j.best);
    // Without a plan in hand it must hold as well.
    if (!(j.best < never)) continue;
    planning_budget more{300'000};
    CHECK(score_bound(j.space.problem, j.space, never, more) <= j.best);
    gaps += 1 - bound / j.best;
    ++bounded;
  }
  INFO("mean gap " << gaps / static_cast<double>(bounded));
  CHECK(gaps / static_cast<double>(bounded) < 0.3);
}

TEST_CASE("the heuristic search is within 10 % of an exhaustive oracle on random pools") {
  constexpr double never = std::numeric_limits<double>::infinity();
  std::size_t judged = 0, equal = 0, missed = 0;
  double worst = 1, sum = 0;
  for (const auto& j : judged_pools(62, 200)) {
    if (!(j.best < never)) continue;
    auto problem = j.space.problem;
    problem.exact_plans = 0;
    planning_budget budget;
    const auto found = search_space(problem, j.space, 1, budget);
    ++judged;
    if (found.plans.empty()) {
      ++missed;
      continue;
    }
    const double ratio = found.plans[0].score / j.best;
    CHECK(ratio >= 1 - 1e-9);
    equal += ratio <= 1 + 1e-9 ? 1 : 0;
    worst = std::max(worst, ratio);
    sum += ratio;
  }
  INFO(judged << " pools: " << equal << " equal, " << missed << " without a plan, worst " << worst
              << ", mean " << sum / static_cast<double>(judged - missed));
  CHECK(equal >= 0.95 * static_cast<double>(judged));
  CHECK(missed <= 2);
  CHECK(worst <= 1.1);
}

TEST_CASE(
    "with the same steps no larger space has a worse plan than the space of pipelines alike") {
  random_source rng{63};
  std::size_t with_plan = 0, better = 0, cut_short = 0;
  for (int i = 0; i < 400; ++i) {
    const random_space space{rng};
    auto alike = space.problem, larger = space.problem;
    // Some are enumerated: the smaller one of the two only, or both.
    if (rng.chance(0.5)) alike.exact_plans = larger.exact_plans = rng.below(2'000);
    alike.space = space_named("alike").value();
    larger.space = space_named(rng.chance(0.7) ? "full" : "sailor").value();
    const std::uint64_t steps = 500 + rng.below(rng.chance(0.5) ? 5'000 : 2'000'000);
    planning_budget few{steps}, same{steps};
    const auto found = search_space(alike, space, 1, few);
    if (found.plans.empty()) continue;
    const auto of_larger = search_space(larger, space, 1, same);
    CAPTURE(i, larger.space.name, steps, found.exact, of_larger.exact);
    REQUIRE(!of_larger.plans.empty());
    CHECK(of_larger.plans[0].score <= found.plans[0].score * (1 + 1e-12));
    ++with_plan;
    better += of_larger.plans[0].score < found.plans[0].score * (1 - 1e-9) ? 1 : 0;
    cut_short += found.complete ? 0 : 1;
  }
  CHECK(with_plan > 200);
  CHECK(better > 5);
  CHECK(cut_short > 40);
}
