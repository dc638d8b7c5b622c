#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "formats/load/load.hpp"
#include "messages/domain/device_kind.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/plans/places.hpp"
#include "planners/search/job_space/job_search.hpp"
#include "planners/search/sailor_formula.hpp"
#include "planners/search/sailor_times.hpp"
#include "planners/search/space/space_search.hpp"

// Plans that the search finds by the product's own estimate, by Sailor's formula: what both agree
// on, and what the memory model alone decides (docs/papers/sailor.md).

using namespace troupe;
using namespace troupe::planners;
using namespace troupe::harness;

namespace {

/// A pool of ../shared/data/sailor/planned, its kinds of GPU as Sailor's formula numbers them, and
/// the seconds of Sailor's own plan by it.
struct planned_pool {
  std::string name;
  std::vector<sailor_pool> pools;
  double sailor_s = 0;
  cluster c{};
  job_spec read{}, job{};  // as its file says, and as it is planned
};

std::vector<planned_pool> planned_pools(const std::string& folder) {
  std::vector<planned_pool> all{{"h32", {{0, 0, 32}}, 7.9932},
                                {"x128", {{0, 0, 32}, {1, 0, 96}}, 5.8876},
                                {"g160", {}, 2.4105},
                                {"x512", {{0, 0, 128}, {1, 0, 384}}, 1.9151},
                                {"m512", {}, 2.3863}};
  for (std::uint32_t zone = 0; zone < 5; ++zone) {
    all[2].pools.push_back({0, zone, 32});
    all[4].pools.push_back({0, zone, 32});
    all[4].pools.push_back({1, zone, zone == 4 ? 64U : 72U});
  }
  for (auto& p : all) {
    p.c = test::loaded(formats::load_cluster(folder + "/planned/" + p.name + "-opt-350.yaml"));
    p.read = test::loaded(formats::load_job(folder + "/opt-350.job.yaml", p.c.gpus));
    // As troupe plan and estimate read it: a program that runs as stages.
    p.job = with_device(p.read, name_of(device_kind::sim));
    p.job.program.command = {p.job.name};
  }
  return all;
}

/// The formula has an embedding and a head of their own, the first and the last of its layers.
std::uint32_t layer_of(std::uint32_t first) {
  return first == 0 ? 0 : first + 1;
}

/// `how`: the same plan with its GPUs.
sailor_plan as_sailors(const cluster& c, const space_plan& plan, const struct plan& how) {
  sailor_plan out{plan.rows, {}, {}};
  for (const auto f : plan.firsts) out.firsts.push_back(layer_of(f));
  for (const auto& g : groups_of(how)) {
    auto& to = out.groups.emplace_back(sailor_group{g.pipelines, g.microbatches, {}});
    for (const auto& s : g.stages)
      to.seats.push_back({c.gpus[s.gpu.value()].name == "A100-40GB" ? 0U : 1U, s.tensor_parallel,
                          s.datacenter.value_or(0)});
  }
  return out;
}

/// By the order of its groups that is best: a ring has none of its own.
double formula_s(const sailor_formula& f, sailor_plan p) {
  const auto before = [](const sailor_group& a, const sailor_group& b) {
    return a.seats < b.seats;
  };
  std::ranges::sort(p.groups, before);
  double best = std::numeric_limits<double>::infinity();
  do {
    const auto v = f.value(p);
    CHECK(v.fits);
    best = std::min(best, v.seconds);
  } while (p.groups.size() <= 6 && std::ranges::next_permutation(p.groups, before).found);
  return best;
}

/// The shortest time by the formula of the plans that are no more than `ties` worse than the best
/// one by the closed form.
double shortest_of_best(const sailor_formula& f, const planned_pool& pool, double ties) {
  const job_places places{pool.c, pool.read, true};
  const auto searched =
      job_search::of(pool.c, idle_index{pool.c}, pool.job, places, space_named("sailor").value());
  REQUIRE(searched);
  planning_budget budget;
  const auto found = searched->search(64, budget);
  REQUIRE(!found.plans.empty());
  double shortest = std::numeric_limits<double>::infinity();
  for (const auto& p : found.plans)
    if (p.found.score <= (1 + ties) * found.plans.front().found.score) {
      const auto placed = p.times->placed(p.found.plan);
      REQUIRE(placed);
      shortest = std::min(shortest, formula_s(f, as_sailors(pool.c, p.found.plan, placed->how)));
    }
  return shortest;
}

/// Sailor's formula, for stages that the product's memory model has room for, too.
class times_with_memory final : public sailor_times {
 public:
  times_with_memory(const sailor_formula& f, const space_problem& p, const cost_model_times& own)
      : sailor_times{f, p}, own_{own} {}

  stage_floor floor_of(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                       std::uint32_t count, std::uint32_t behind) const override {
    constexpr double never = std::numeric_limits<double>::infinity();
    if (!has_room(rows, cls, first, first + count, behind)) return {never, never, 0};
    return sailor_times::floor_of(rows, cls, first, count, behind);
  }
  space_value value(const space_plan& plan) const override {
    for (std::uint32_t i = 0; i < plan.stages(); ++i) {
      const auto end = i + 1 < plan.stages() ? plan.firsts[i + 1] : sailor_formula::layers;
      for (const auto& g : plan.groups)
        if (!has_room(plan.rows, g.seats[i].cls, plan.firsts[i], end, plan.stages() - 1 - i))
          return {};
    }
    return sailor_times::value(plan);
  }

 private:
  /// No stage of the product's has the embedding or the head alone.
  bool has_room(std::uint32_t rows, std::uint32_t cls, std::uint32_t first, std::uint32_t end,
                std::uint32_t behind) const {
    const auto last = sailor_formula::layers;
    const auto from = first == 0 ? 0 : first - 1, to = end == last ? last - 2 : end - 1;
    return to > from && own_.floor_of(rows, cls, from, to - from, behind).way_s <
                            std::numeric_limits<double>::infinity();
  }

  const cost_model_times& own_;
};

/// The shortest time by the formula that a search finds among plans with room by the memory model.
double shortest_with_room(const sailor_formula& f, const planned_pool& pool) {
  const idle_index idle{pool.c};
  const auto own = cost_model_times::of(pool.c, idle, pool.job, space_named("sailor").value());
  REQUIRE(own);
  const auto problem = sailor_problem(pool.pools, "sailor");
  REQUIRE(problem.classes == (*own)->problem().classes);
  planning_budget budget;
  const auto found = search_space(problem, times_with_memory{f, problem, **own}, 1, budget);
  REQUIRE(!found.plans.empty());
  return found.plans.front().value.seconds;
}

}  // namespace

TEST_CASE("of mixed types the cost model's best plans or near ones are ahead by Sailor's formula") {
  const auto folder = shared_data("sailor");
  if (!folder) {
    WARN("skipped: this checkout has no ../shared/data/sailor");
    return;
  }
  const sailor_formula formula{*folder};
  const auto pools = planned_pools(*folder);
  CHECK(shortest_of_best(formula, pools[1], 0) <= 0.95 * pools[1].sailor_s);
  CHECK(shortest_of_best(formula, pools[3], 0.02) <= 0.97 * pools[3].sailor_s);
  CHECK(shortest_of_best(formula, pools[4], 0.02) <= 0.85 * pools[4].sailor_s);
}

TEST_CASE("of one type no plan that the memory model has room for is as fast as Sailor's") {
  const auto folder = shared_data("sailor");
  if (!folder) {
    WARN("skipped: this checkout has no ../shared/data/sailor");
    return;
  }
  const sailor_formula formula{*folder};
  const auto pools = planned_pools(*folder);
  // The formula's own memory has room for D16 T2 of 4 rows, and D32 T4 of 8.
  CHECK(shortest_with_room(formula, pools[0]) == Approx(8.0772).epsilon(1e-4));
  CHECK(shortest_with_room(formula, pools[2]) == Approx(2.4838).epsilon(1e-4));
  CHECK(8.0772 > pools[0].sailor_s);
  CHECK(2.4838 > pools[2].sailor_s);
}
