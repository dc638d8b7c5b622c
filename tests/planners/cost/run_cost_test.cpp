#include <catch2/catch.hpp>

#include <optional>

#include "planners/cost/plan_time.hpp"
#include "planners/cost/run_cost.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/explicit_plan.hpp"
#include "planners/plans/plan_worth.hpp"
#include "planners/policy/move.hpp"
#include "planners/sample.hpp"

// The cost of a run: GPUs and traffic between datacenters.

using namespace troupe;
using namespace troupe::planners;

namespace {

/// Datacenters of a few GPUs each, all linked, with a price of its own in each direction.
cluster priced_sites(std::uint32_t sites, std::uint32_t nodes, std::uint32_t gpus) {
  cluster c;
  for (std::uint32_t d = 0; d < sites; ++d) {
    c.datacenters.push_back({"d" + std::to_string(d), ""});
    const auto first = c.nodes.size();
    sample::add_nodes(c, sample::a100_80, nodes, gpus);
    for (auto n = first; n < c.nodes.size(); ++n) c.nodes[n].datacenter = d;
    for (std::uint32_t other = 0; other < d; ++other) {
      wan_link w{other, d, 10, 5, 0};
      w.price_per_gb = 0.01 * (1 + other);
      w.price_per_gb_back = 0.05 * (1 + d);
      c.wan.push_back(w);
    }
  }
  return c;
}

job_spec tiny_training(std::uint32_t batch, bool tied) {
  auto j = sample::job(sample::gpt("m", 64, 8, 4, 64, 100), batch);
  j.model.tied_head = tied;
  j.train.emplace();
  j.train->device = "sim";
  j.train->schedule = "megatron";
  return j;
}

/// Stages of four layers each, in these datacenters.
pipeline_group group_in(std::vector<std::uint32_t> datacenters, std::uint32_t pipelines,
                        std::uint32_t microbatches) {
  pipeline_group g{pipelines, microbatches, {}};
  const auto each = 16 / static_cast<std::uint32_t>(datacenters.size());
  for (std::uint32_t s = 0; s < datacenters.size(); ++s)
    g.stages.push_back({s * each, each, 1, gpu_index{0}, 0, datacenters[s]});
  return g;
}

iteration_estimate estimate_of(const cluster& c, const job_spec& job,
                               const std::vector<pipeline_group>& groups) {
  const auto p = plan_of_groups(c, idle_index{c}, job, groups, 1);
  if (!p) FAIL(p.error().text);
  const auto e = evaluate(c, job, p->how, p->where, fidelity::closed);
  REQUIRE(e);
  CHECK(p->how.traffic_per_iteration.value_or(0) == e->traffic_per_iteration);
  return *e;
}

constexpr std::uint64_t activation = 64 * 64 * 2;  // bytes of one sample's
constexpr std::uint64_t word = 8;                  // each way, for each update

}  // namespace

TEST_CASE("activations and their gradients are paid on each hop between datacenters") {
  const auto c = priced_sites(2, 2, 4);
  const auto e = estimate_of(c, tiny_training(10, false), {group_in({0, 1}, 2, 5)});
  // Two pipelines of five micro-batches, each way.
  const auto bytes = 10 * activation + word;
  const datacenter_traffic expected{{{0, 1}, bytes}, {{1, 0}, bytes}};
  CHECK(e.traffic == expected);
  CHECK(e.traffic_per_iteration == Approx(bytes / 1e9 * (0.01 + 0.1)));
  CHECK(cost_of_iteration(e) ==
        Approx(e.iteration_s * e.cost_per_hour / 3600 + e.traffic_per_iteration));
}

TEST_CASE("running sums are paid twice for each boundary, a tied embedding for both ends") {
  const auto c = priced_sites(3, 2, 4);
  const auto job = tiny_training(12, false);
  const auto one =
      estimate_of(c, job, {group_in({0}, 2, 2), group_in({1}, 3, 2), group_in({2}, 1, 2)});
  const auto p = plan_of_groups(c, idle_index{c}, job, {group_in({0}, 6, 2)}, 1);
  REQUIRE(p);
  const auto timed = time_plan(c, job, p->how, p->where);
  REQUIRE(timed);
  const auto all = timed->costs[0].gradient_bytes;
  // The first pipeline agrees on updates with three peers there, and with one further on.
  CHECK(one.traffic == datacenter_traffic{{{0, 1}, all + 3 * word},
                                          {{1, 0}, all + 3 * word},
                                          {{1, 2}, all},
                                          {{2, 1}, all},
                                          {{0, 2}, word},
                                          {{2, 0}, word}});
  // In one datacenter nothing is paid.
  CHECK(estimate_of(c, job, {group_in({0}, 6, 2)}).traffic.empty());
  const auto tied = estimate_of(c, tiny_training(4, true), {group_in({0, 1}, 2, 2)});
  const std::uint64_t embedding = 100 * 64 * 2;
  CHECK(tied.traffic.at({1, 0}) == 4 * activation + 2 * embedding + word);
}

TEST_CASE(
    "a pipeline's parts of the model multiply its hops, and its agreements are counted once") {
  const std::vector<std::uint32_t> at{0, 0, 1};
  const std::vector<std::uint64_t> bytes{7, 9, 0};
  datacenter_traffic all;
  add_pipelines(all, at, {3, bytes, 0, 2}, 10);
  add_agreement(all, at);
  // Twice over the hop in the middle, once from the end to the begin.
  CHECK(all.at({0, 1}) == 10 * (2 * 3 * 9 + 3 * 7) + 8);
  CHECK(all.at({1, 0}) == all.at({0, 1}));
}

TEST_CASE("a budget, a plan's worth and a placement's choice count traffic") {
  auto job = tiny_training(8, false);
  job.objective = "cheapest";
  plan how;
  how.samples_per_s = 4;  // two seconds an iteration
  how.cost_per_hour = 36;
  CHECK(cost_of_run(job, how) == Approx(1000 * 0.02));
  how.traffic_per_iteration = 0.03;
  CHECK(cost_of_run(job, how) == Approx(1000 * 0.05));
  CHECK(plan_worth(job, how) == Approx(8 / 0.05));
  job.limits.budget = 50.1;
  CHECK(within_budget(job, how));
  job.limits.budget = 49.9;
  CHECK_FALSE(within_budget(job, how));
}

TEST_CASE("a row of Algorithm 1 has the same traffic as the plan that is made from it") {
  random_source r{7};
  int crossing = 0, dearer = 0;
  for (int i = 0; i < 60; ++i) {
    auto c = priced_sites(3, 1, 1 + static_cast<std::uint32_t>(r.below(2)));
    auto job = tiny_training(12, r.chance(0.5));
    job.model.needs_norm = r.chance(0.5);
    job.pipeline.stages = 2 + static_cast<std::uint32_t>(r.below(3));
    INFO("case " << i);
    planning_budget budget;
    const auto p = place_pipelines(c, idle_index{c}, job, true, budget);
    if (!p) continue;
    const auto e = evaluate(c, job, p->how, p->where, fidelity::closed);
    REQUIRE(e);
    CHECK(p->how.traffic_per_iteration.value_or(0) ==
          Approx(e->traffic_per_iteration).epsilon(1e-12));
    crossing += !e->traffic.empty();
    // Where traffic is dear, the cheapest placement has none of it if one datacenter will do.
    for (auto& w : c.wan) w.price_per_gb = w.price_per_gb_back = 1e5;
    job.objective = "cheapest";
    job.pipeline.stages = 0;
    const auto near = place_pipelines(c, idle_index{c}, job, false, budget);
    REQUIRE(near);
    CHECK_FALSE(near->how.traffic_per_iteration);
    dearer += !e->traffic.empty();
  }
  CHECK(crossing > 10);
  CHECK(dearer > 10);
}

TEST_CASE("a budget selects a cheaper placement, or the refusal names the lowest cost") {
  const auto c = priced_sites(2, 1, 4);
  auto job = tiny_training(16, false);
  job.model = sample::gpt2_small;
  job.objective = "fastest";
  planning_budget budget;
  const auto fastest = place_pipelines(c, idle_index{c}, job, true, budget);
  REQUIRE(fastest);
  REQUIRE(fastest->how.gpus() > 1);
  const auto cost_with = [&](double limit) -> std::optional<double> {
    job.limits.budget = limit;
    const auto plans = plans_for(c, job, budget);
    if (plans) return cost_of_run(job, plans->front());
    CHECK_THAT(plans.error().text, Catch::Contains("budget"));
    return {};
  };
  const auto max = cost_with(1e9);
  REQUIRE(max);
  const auto less = cost_with(0.95 * *max);
  REQUIRE(less);
  CHECK(*less <= 0.95 * *max);
  CHECK_FALSE(cost_with(1e-9));
}

TEST_CASE("a moved training pays for what it reads of its checkpoint from elsewhere") {
  const auto c = priced_sites(2, 2, 4);
  const auto job = tiny_training(8, false);
  const auto in = [&](std::vector<std::uint32_t> datacenters, std::uint32_t pipelines) {
    auto p =
        plan_of_groups(c, idle_index{c}, job, {group_in(datacenters, pipelines, 8 / pipelines)}, 1);
    if (!p) FAIL(p.error().text);
    return std::move(*p);
  };
  const auto whole = in({0}, 1);
  const auto timed = time_plan(c, job, whole.how, whole.where);
  REQUIRE(timed);
  const auto bytes = 12 * (timed->costs[0].gradient_bytes / 2);  // which has two of each parameter
  CHECK(traffic_of_move(c, job, whole, in({0}, 2)).empty());
  // Each pipeline reads it.
  CHECK(traffic_of_move(c, job, whole, in({1}, 2)) == datacenter_traffic{{{0, 1}, 2 * bytes}});
  // The first two stages' parts come from one datacenter, the others are there already.
  const auto divided = in({0, 0, 1, 1}, 1), joined = in({1}, 1);
  const auto half = traffic_of_move(c, job, divided, joined);
  REQUIRE(half.size() == 1);
  CHECK(half.at({0, 1}) > bytes / 4);
  CHECK(half.at({0, 1}) < 3 * bytes / 4);
  // As much as is in the other datacenter crosses the other way.
  CHECK(traffic_of_move(c, job, joined, divided).at({1, 0}) == half.at({0, 1}));
}

TEST_CASE("a program's ring over datacenters is estimated traffic") {
  const auto c = priced_sites(2, 1, 4);
  auto job = sample::job(sample::gpt2_small, 8);
  plan how;
  how.data_parallel = 8;
  const auto e = estimate_iteration(c, job, how, {{0, 4}, {1, 4}});
  REQUIRE(e.traffic.size() == 2);
  CHECK(e.traffic.at({0, 1}) == e.traffic.at({1, 0}));
  CHECK(e.traffic_per_iteration > 0);
  how.data_parallel = 4;
  CHECK(estimate_iteration(c, job, how, {{0, 4}}).traffic.empty());
}
