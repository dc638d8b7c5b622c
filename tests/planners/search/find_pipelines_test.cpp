#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>
#include <optional>

#include <fmt/format.h>

#include "harness/facts.hpp"
#include "messages/base/time.hpp"
#include "planners/cost/model_partition.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/cost/run_cost.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/explicit_plan.hpp"
#include "planners/plans/fits.hpp"
#include "planners/plans/places.hpp"
#include "planners/search/job_space/cost_model_times.hpp"
#include "planners/search/job_space/find_pipelines.hpp"

// Searched plans against every plan.

using namespace troupe;
using namespace troupe::planners;

namespace {

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
          if (p && fits(c, idle, p->how, p->where)) best = std::min(best, plan_score(job, p->how));
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

TEST_CASE(
    "a searched plan is no worse than the best of alike pipelines, and all plans hold none "
    "better") {
  const auto c = mixed();
  for (const std::string objective : {"fastest", "cheapest", "efficient"}) {
    auto job = small_model();
    job.objective = objective;
    planning_budget budget;
    const auto found = find_pipelines(c, idle_index{c}, job, widest_space(), 3, budget);
    REQUIRE(found);
    const double best = best_of_all(c, job), mine = plan_score(job, found->plans[0].how);
    INFO(objective << ": " << mine << " of " << best);
    CHECK(mine <= best * (1 + 1e-9));
    CHECK(found->plans.size() == 3);
    const auto every = find_pipelines(c, idle_index{c}, job, widest_space(), 1'000'000, budget);
    REQUIRE(every);
    CHECK(every->exact);
    CHECK(plan_score(job, every->plans[0].how) == Approx(mine).epsilon(1e-12));
    for (const auto& p : found->plans) CHECK(fits(c, idle_index{c}, p.how, p.where));
  }
}

TEST_CASE("stages that other rules cut are a plan of the search only if each has a piece") {
  const auto c = mixed();
  const idle_index idle{c};
  const auto times = cost_model_times::of(c, idle, small_model(), widest_space());
  REQUIRE(times);
  const auto pieces = (*times)->problem().pieces;
  const space_plan plan{1, {0, 1}, {{1, 8, {{0, 0}, {0, 0}}}}};
  const auto cut_at = [&](std::uint32_t first) {
    return (*times)->like(plan, {{0, first, 1, 0}, {first, pieces - first, 1, 1}});
  };
  REQUIRE(cut_at(pieces - 1));
  CHECK(is_cut((*times)->problem(), cut_at(pieces - 1)->firsts));
  CHECK_FALSE(cut_at(pieces));  // the last stage has the head alone
}

TEST_CASE(
    "a search respects quotas, limits and bounds, and names the one that excludes all plans") {
  auto c = mixed();
  auto job = small_model();
  job.objective = "fastest";
  planning_budget budget;
  const auto free = find_pipelines(c, idle_index{c}, job, widest_space(), 1, budget);
  REQUIRE(free);
  c.gpus[0].quota = 1;
  const auto fewer = find_pipelines(c, idle_index{c}, job, widest_space(), 1, budget);
  REQUIRE(fewer);
  std::uint32_t fast = 0;
  for (const auto& share : fewer->plans[0].where)
    if (c.nodes[share.node].gpu == 0) fast += share.gpus;
  CHECK(fast <= 1);
  job.limits.slo_s = 1e-3;
  const auto none = find_pipelines(c, idle_index{c}, job, widest_space(), 1, budget);
  REQUIRE_FALSE(none);
  CHECK(none.error().code == reason::kind::infeasible);
  job.limits.slo_s.reset();
  job.model.layers = 400;
  const auto too_large = find_pipelines(c, idle_index{c}, job, widest_space(), 1, budget);
  REQUIRE_FALSE(too_large);
  CHECK(too_large.error().text.find("memory") != std::string::npos);
}

TEST_CASE("a job gets no more idle GPUs of a type than its quota") {
  auto c = mixed();
  c.gpus[1].quota = 1;
  const idle_index idle{c};
  std::optional<idle_index> restricted;
  const auto& allowed = allowed_idle(c, idle, small_model(), restricted);
  CHECK(allowed.idle_of(0) == 2);
  CHECK(allowed.idle_of(1) == 1);
  CHECK(within_bounds(c, small_model(), {{2, 1}}));
  const auto refused = within_bounds(c, small_model(), {{2, 2}});
  REQUIRE_FALSE(refused);
  CHECK(troupe::test::has_facts(refused.error().text, {"2 slow", "1", "quota"}));
}

TEST_CASE(
    "with limits the search finds the best plan within them, or says the nearest feasible limit") {
  const auto c = mixed();
  const idle_index idle{c};
  auto job = small_model();
  job.objective = "cheapest";
  const auto run_s = [&](const placed_plan& p) {
    return job.global_batch / p.how.samples_per_s * static_cast<double>(job.iterations);
  };
  const auto cost = [&](const placed_plan& p) { return p.how.cost_per_hour * run_s(p) / 3600; };
  planning_budget budget;
  const auto all = find_pipelines(c, idle, job, widest_space(), 1'000'000, budget);
  REQUIRE(all);
  double fastest_s = never, cheapest = never;
  for (const auto& p : all->plans)
    fastest_s = std::min(fastest_s, run_s(p)), cheapest = std::min(cheapest, cost(p));
  for (const double slack : {1.01, 1.2, 1.5, 2.0, 3.0}) {
    for (const bool slo : {true, false}) {
      job.limits.slo_s.reset(), job.limits.deadline_s.reset(), job.limits.budget.reset();
      (slo ? job.limits.slo_s : job.limits.deadline_s) = fastest_s * slack;
      double min = never;
      for (const auto& p : all->plans)
        if (run_s(p) <= fastest_s * slack) min = std::min(min, cost(p));
      const auto found = find_pipelines(c, idle, job, widest_space(), 1, budget);
      REQUIRE(found);
      CHECK(cost(found->plans[0]) == Approx(min).epsilon(1e-9));
      job.limits.budget = min * 0.99;
      const auto none = find_pipelines(c, idle, job, widest_space(), 1, budget);
      REQUIRE_FALSE(none);
      CHECK(none.error().text.find(fmt::format("{:.4g}", min)) != std::string::npos);
      job.limits.budget = min * 1.01;
      CHECK(find_pipelines(c, idle, job, widest_space(), 1, budget));
    }
  }
  job.limits.slo_s.reset(), job.limits.deadline_s.reset();
  job.limits.budget = cheapest * 0.99;
  const auto dear = find_pipelines(c, idle, job, widest_space(), 1, budget);
  REQUIRE_FALSE(dear);
  CHECK(dear.error().text.find(fmt::format("{:.4g}", cheapest)) != std::string::npos);
  job.limits.slo_s = fastest_s * 0.99;
  const auto slow = find_pipelines(c, idle, job, widest_space(), 1, budget);
  REQUIRE_FALSE(slow);
  CHECK(slow.error().text.find(fmt::format("{:.4g}", fastest_s)) != std::string::npos);
}
