#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>

#include "messages/random.hpp"
#include "messages/time.hpp"
#include "planners/core/fits.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/pipeline/model_partition.hpp"
#include "planners/pipeline/plan_search.hpp"
#include "planners/pipeline/stage_cut.hpp"

// Cuts against every order and every cut; searched plans against every plan.

using namespace troupe;
using namespace troupe::planners;

namespace {

/// Stages that differ in speed and in how much they hold, over pieces of unequal work.
struct chain_case {
  std::vector<std::uint32_t> kinds;
  std::vector<double> speed, room, work, size;

  explicit chain_case(random_source& r) {
    const auto n = 1 + r.below(3);
    for (std::size_t k = 0; k < n; ++k) {
      kinds.push_back(static_cast<std::uint32_t>(r.below(3)));
      speed.push_back(0.2 + r.uniform());
      room.push_back(2 + 10 * r.uniform());
    }
    kinds[0] += 1;
    const auto pieces = 4 + r.below(6);
    for (std::size_t i = 0; i < pieces; ++i) {
      work.push_back(0.2 + r.uniform());
      size.push_back(0.2 + r.uniform());
    }
  }

  std::uint32_t pieces() const { return static_cast<std::uint32_t>(work.size()); }
  range_cost cost() const {
    return
        [this](std::size_t kind, std::uint32_t first, std::uint32_t count, std::uint32_t behind) {
          double all = 0, bytes = 0;
          for (auto i = first; i < first + count; ++i) all += work[i], bytes += size[i];
          return bytes * (1 + 0.2 * behind) < room[kind] ? all / speed[kind] : never;
        };
  }

  /// By trying everything.
  double least_slowest() const {
    double best = never;
    std::vector<std::uint32_t> left;
    std::uint32_t stages = 0;
    for (const auto k : kinds) left.push_back(k), stages += k;
    const std::function<void(std::uint32_t, std::uint32_t, double)> go =
        [&](std::uint32_t first, std::uint32_t behind, double slowest) {
          for (std::size_t k = 0; k < left.size(); ++k) {
            if (left[k] == 0) continue;
            --left[k];
            for (std::uint32_t n = 1; first + n + behind <= pieces(); ++n) {
              if (behind == 0 && first + n < pieces()) continue;
              const double now = std::max(slowest, cost()(k, first, n, behind));
              if (behind == 0)
                best = std::min(best, now);
              else
                go(first + n, behind - 1, now);
            }
            ++left[k];
          }
        };
    if (stages <= pieces()) go(0, stages - 1, 0);
    return best;
  }
};

/// Two types of GPU in nodes of one and of two.
cluster mixed() {
  cluster c;
  c.name = "mixed";
  c.datacenters = {{"dc", {}}};
  gpu_type fast, slow;
  fast.name = "fast", fast.memory_gb = 16, fast.fp16_tflops = 100, fast.efficiency = 0.5;
  fast.price_per_hour = 3;
  slow.name = "slow", slow.memory_gb = 12, slow.fp16_tflops = 40, slow.efficiency = 0.5;
  slow.price_per_hour = 1;
  c.gpus = {fast, slow};
  const troupe::link pcie{"pcie", 128, 5}, lan{"lan", 10, 50};
  for (const auto* name : {"a", "b"}) c.nodes.push_back({name, 0, 0, 1, pcie, lan});
  c.nodes.push_back({"c", 0, 1, 2, pcie, lan});
  return c;
}

job_spec small_model() {
  job_spec job;
  job.name = "job";
  job.model.name = "gpt";
  job.model.hidden = 2048, job.model.layers = 3, job.model.heads = 16;
  job.model.sequence = 1024, job.model.vocabulary = 50257;
  job.global_batch = 8;
  job.iterations = 100;
  return job;
}

/// The best plan, by trying every order, cut, number of pipelines and tensor group.
double best_of_all(const cluster& c, const job_spec& job) {
  double best = never;
  const idle_index idle{c};
  auto trained = job;
  trained.train.emplace().schedule = "megatron";
  std::vector<stage_request> stages;
  const auto pieces = pieces_of(job.model);
  for (const std::uint32_t d : {1, 2, 4})
    for (const std::uint32_t t : {1, 2}) {
      trained.pipeline.tensor_parallel = t;
      const std::function<void(std::uint32_t)> go = [&](std::uint32_t left) {
        if (left == 0) {
          const auto p = plan_of_stages(c, idle, trained, stages, d);
          if (p && fits(c, idle, p->how, p->where)) best = std::min(best, plan_score(job, *p));
          return;
        }
        if (stages.size() == 4) return;
        for (gpu_index g = 0; g < c.gpus.size(); ++g)
          for (std::uint32_t n = 1; n <= left; ++n) {
            stages.push_back({g, n, t});
            go(left - n);
            stages.pop_back();
          }
      };
      go(pieces);
    }
  return best;
}

}  // namespace

TEST_CASE("a cut among unequal stages has the least slowest stage of all orders and cuts") {
  random_source random{20261122};
  int possible = 0;
  for (int i = 0; i < 300; ++i) {
    const chain_case x{random};
    const auto cut = cut_for(x.kinds, x.pieces(), x.cost());
    const double least = x.least_slowest();
    INFO(i);
    REQUIRE(cut.stages.empty() == (least == never));
    if (least == never) continue;
    ++possible;
    CHECK(cut.slowest_s == Approx(least).epsilon(1e-5));
    std::uint32_t pieces = 0;
    std::vector<std::uint32_t> used(x.kinds.size());
    for (const auto& s : cut.stages) pieces += s.pieces, ++used[s.kind];
    CHECK(pieces == x.pieces());
    for (std::size_t k = 0; k < used.size(); ++k) CHECK(used[k] == x.kinds[k]);
  }
  CHECK(possible > 100);
}

TEST_CASE(
    "a searched plan is within 5 % of the best of all plans, and its bound skips nothing better") {
  const auto c = mixed();
  for (const std::string objective : {"fastest", "cheapest", "efficient"}) {
    auto job = small_model();
    job.objective = objective;
    planning_budget budget;
    const auto found = search_plans(c, idle_index{c}, job, 3, budget);
    REQUIRE(found);
    const double best = best_of_all(c, job), mine = plan_score(job, found->plans[0]);
    INFO(objective << ": " << mine << " of " << best << ", bound " << found->bound);
    CHECK(mine <= best * 1.05);
    CHECK(mine >= best * (1 - 1e-9));
    CHECK(found->plans.size() == 3);
    const auto every = search_plans(c, idle_index{c}, job, 1'000'000, budget);
    REQUIRE(every);
    CHECK(every->placed == every->candidates);
    CHECK(plan_score(job, every->plans[0]) == Approx(mine).epsilon(1e-12));
    for (const auto& p : found->plans) CHECK(fits(c, idle_index{c}, p.how, p.where));
  }
}

TEST_CASE("a search keeps quotas, limits and bounds, and says what breaks them") {
  auto c = mixed();
  auto job = small_model();
  job.objective = "fastest";
  planning_budget budget;
  const auto free = search_plans(c, idle_index{c}, job, 1, budget);
  REQUIRE(free);
  c.gpus[0].quota = 1;
  const auto fewer = search_plans(c, idle_index{c}, job, 1, budget);
  REQUIRE(fewer);
  std::uint32_t fast = 0;
  for (const auto& share : fewer->plans[0].where)
    if (c.nodes[share.node].gpu == 0) fast += share.gpus;
  CHECK(fast <= 1);
  job.slo_s = 1e-3;
  const auto none = search_plans(c, idle_index{c}, job, 1, budget);
  REQUIRE_FALSE(none);
  CHECK(none.error().code == reason::kind::infeasible);
  job.slo_s.reset();
  job.model.layers = 400;
  const auto too_large = search_plans(c, idle_index{c}, job, 1, budget);
  REQUIRE_FALSE(too_large);
  CHECK(too_large.error().text.find("memory") != std::string::npos);
}
