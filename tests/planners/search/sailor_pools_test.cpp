#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "planners/search/sailor_formula.hpp"
#include "planners/search/sailor_times.hpp"
#include "planners/search/space/space_search.hpp"

// The search with Sailor's formula as its time: does it find better plans than Sailor's planner?

using namespace troupe::harness;
using namespace troupe::planners;

namespace {

struct known_pool {
  std::string name;
  std::vector<sailor_pool> pools;
  double max_s = 0, max_dollars = 0;
};

std::vector<known_pool> known_pools() {
  known_pool g160{"g160", {}, 2.4105, 0.4468}, m512{"m512", {}, 2.02, 0.80};
  for (std::uint32_t zone = 0; zone < 5; ++zone) {
    g160.pools.push_back({0, zone, 32});
    m512.pools.push_back({0, zone, 32});
    m512.pools.push_back({1, zone, zone == 4 ? 64U : 72U});
  }
  return {{"h32", {{0, 0, 32}}, 7.80, 0.260},
          {"x128", {{0, 0, 32}, {1, 0, 96}}, 5.30, 0.570},
          g160,
          {"x512", {{0, 0, 128}, {1, 0, 384}}, 1.82, 0.785},
          m512};
}

std::string text_of(const space_problem& p, const space_plan& plan) {
  std::string out = "rows " + std::to_string(plan.rows) + " at";
  for (const auto f : plan.firsts) out += " " + std::to_string(f);
  for (const auto& g : plan.groups) {
    out += "; " + std::to_string(g.pipelines) + " x " + std::to_string(g.microbatches) + ":";
    for (const auto& s : g.seats) {
      const auto& c = p.classes[s.cls];
      out += (c.kind == 0 ? " A" : " V") + std::to_string(c.tensor) + "@" +
             std::to_string(s.datacenter);
    }
  }
  return out;
}

}  // namespace

TEST_CASE("Sailor's pools have faster and cheaper plans than its own by its own formula") {
  const auto folder = shared_data("sailor");
  if (!folder) {
    WARN("skipped: this checkout has no ../shared/data/sailor");
    return;
  }
  const sailor_formula formula{*folder};
  for (const auto& k : known_pools()) {
    const auto problem = sailor_problem(k.pools, "sailor");
    planning_budget budget{planning_budget::units_a_plan};
    const auto found = search_space(problem, sailor_times{formula, problem}, 4, budget);
    REQUIRE(!found.plans.empty());
    const auto& best = found.plans.front();
    INFO(k.name << ": " << text_of(problem, best.plan) << "; " << found.cuts << " cuts, "
                << found.valued << " valued, " << budget.left() << " units left");
    CAPTURE(best.value.seconds, best.value.dollars);
    CHECK(best.value.seconds <= k.max_s);
    CHECK(best.value.dollars <= k.max_dollars);
  }
}

TEST_CASE("Sailor's GPUs in odd numbers are used by pipelines of several kinds") {
  const auto folder = shared_data("sailor");
  if (!folder) {
    WARN("skipped: this checkout has no ../shared/data/sailor");
    return;
  }
  const sailor_formula formula{*folder};
  struct odd_pool {
    std::uint32_t a100 = 0, v100 = 0;
    double max_s = 0;
  };
  // All pipelines alike: 15.62, 15.62 and 30.84 s. Without exact fit the first one takes 14.97 s.
  for (const auto& k : {odd_pool{12, 20, 14.2}, {13, 22, 13.1}, {7, 9, 25.8}}) {
    const auto problem = sailor_problem({{0, 0, k.a100}, {1, 0, k.v100}}, "full");
    planning_budget budget;
    const auto found = search_space(problem, sailor_times{formula, problem}, 1, budget);
    REQUIRE(!found.plans.empty());
    INFO(k.a100 << " + " << k.v100 << ": " << text_of(problem, found.plans.front().plan));
    CHECK(found.plans.front().value.seconds <= k.max_s);
  }
}

TEST_CASE("Sailor's pools have a cheaper plan within a time that its own planner finds none in") {
  const auto folder = shared_data("sailor");
  if (!folder) {
    WARN("skipped: this checkout has no ../shared/data/sailor");
    return;
  }
  const sailor_formula formula{*folder};
  auto problem = sailor_problem(known_pools()[1].pools, "sailor");
  problem.goal = space_goal::cheapest;
  problem.max_s = 5.5;
  planning_budget budget{planning_budget::units_a_plan};
  const auto found = search_space(problem, sailor_times{formula, problem}, 4, budget);
  REQUIRE(!found.plans.empty());
  const auto& best = found.plans.front();
  INFO(text_of(problem, best.plan));
  CAPTURE(best.value.seconds, best.value.dollars);
  CHECK(best.value.seconds <= 5.5);
  CHECK(best.value.dollars <= 0.475);
}
