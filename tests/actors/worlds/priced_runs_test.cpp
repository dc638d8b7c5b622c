#include <catch2/catch.hpp>

#include <memory>
#include <optional>

#include "actors/worlds/random_groups.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/cost/run_cost.hpp"
#include "planners/policy/wrapped_policy.hpp"
#include "studies/training_simulation.hpp"

// The price of traffic between datacenters: planned, and as gateways count it in virtual time.

using namespace troupe;
using namespace troupe::studies;
using harness::by_groups, harness::grouped_case, harness::random_groups;

namespace {

void set_prices(cluster& c, random_source& r) {
  for (auto& w : c.wan) {
    w.price_per_gb = 0.01 * static_cast<double>(1 + r.below(20));
    if (r.chance(0.5)) w.price_per_gb_back = 0.01 * static_cast<double>(r.below(20));
  }
}

planners::datacenter_traffic counted_by(const std::vector<gateway_traffic>& gateways) {
  planners::datacenter_traffic all;
  for (std::uint32_t from = 0; from < gateways.size(); ++from) {
    const auto& sent = gateways[from].sent_to;
    for (std::uint32_t to = 0; sent && to < sent->size(); ++to)
      if ((*sent)[to] > 0) all[{from, to}] = (*sent)[to];
  }
  return all;
}

/// Notes where the inner policy has started a job.
class watched_starts final : public planners::wrapped_policy {
 public:
  explicit watched_starts(std::shared_ptr<const planners::policy> inner)
      : wrapped_policy{std::move(inner)} {}
  std::vector<planners::decision> decide(const planners::snapshot& s,
                                         random_source& random) const override {
    auto all = inner().decide(s, random);
    for (const auto& d : all)
      if (d.starts()) last = d;
    return all;
  }
  mutable std::optional<planners::decision> last;
};

/// A job on clusters whose GPUs, links and prices are drawn.
grouped_case random_training(random_source& r) {
  auto x = random_groups(r);
  auto& c = x.on;
  set_prices(c, r);
  c.gpus[0].price_per_hour = 1 + 4 * r.uniform();
  c.gpus.push_back(c.gpus[0]);
  c.gpus[1].name = "H";
  c.gpus[1].fp16_tflops *= 2;
  c.gpus[1].price_per_hour *= 1 + 2 * r.uniform();
  // So few GPUs in each datacenter that pipelines often need several.
  std::vector<node> few;
  for (std::uint32_t d = 0; d < c.datacenters.size(); ++d)
    for (std::uint32_t n = 0, end = 1 + static_cast<std::uint32_t>(r.below(3)); n < end; ++n) {
      auto a = c.nodes[16 * d + n];
      a.gpu = static_cast<gpu_index>(r.below(2));
      few.push_back(std::move(a));
    }
  c.nodes = std::move(few);
  x.job.train->schedule = r.chance(0.5) ? "megatron" : "";
  x.job.objective = r.chance(0.3) ? "cheapest" : r.chance(0.5) ? "fastest" : "efficient";
  x.job.pipeline.stages = r.chance(0.5) ? 0 : x.job.pipeline.stages;
  return x;
}

/// Runs of trainings whose budgets are near what they cost without one; true figures of each count.
struct priced_outcome {
  int refused = 0, finished = 0, crossing = 0, over = 0, dearer_without = 0;
};

void run_with_budget(random_source& r, priced_outcome& all) {
  auto x = random_training(r);
  const auto run = [&](const job_spec& job, const watched_starts*& starts) {
    training_simulation_options o;
    o.cluster = std::make_shared<const cluster>(x.on);
    o.job = job;
    auto policy = std::make_shared<watched_starts>(planners::make_policy("troupe"));
    starts = policy.get();
    auto done = simulate_training(std::move(o), policy);
    return std::pair{std::move(done), std::move(policy)};
  };
  const auto cost_of = [&](const simulated_training& done, const watched_starts& starts) {
    double seconds = 0, per_hour = 0;
    for (const auto& it : done.report.iterations) seconds += it.end_s - it.begin_s;
    for (const auto& share : starts.last->where)
      per_hour += share.gpus * price_per_hour(x.on, share.node);
    return planners::cost_of_run(1, seconds, per_hour,
                                 planners::price_of(x.on, counted_by(done.traffic)));
  };
  const watched_starts* starts = nullptr;
  const auto [free, free_policy] = run(x.job, starts);
  if (!free) return;  // no layout fits
  const double without = cost_of(*free, *starts);
  x.job.limits.budget = without * (0.5 + 0.8 * r.uniform());
  const auto [done, policy] = run(x.job, starts);
  if (!done) {
    ++all.refused;
    CHECK_THAT(done.error().text, Catch::Contains("budget"));
    return;
  }
  ++all.finished;
  const double cost = cost_of(*done, *starts);
  all.crossing += !counted_by(done->traffic).empty();
  all.dearer_without += without > *x.job.limits.budget;
  if (!(cost <= *x.job.limits.budget)) ++all.over;
  CAPTURE(cost, *x.job.limits.budget, starts->last->how.data_parallel,
          starts->last->how.pipeline_parallel);
  CHECK(cost <= *x.job.limits.budget);
}

}  // namespace

TEST_CASE("the traffic of a plan is what gateways count in virtual time, to the byte") {
  random_source r{60};
  int sums = 0, crossing = 0, tied = 0;
  for (int i = 0, made = 0; made < 50; ++i) {
    auto x = random_groups(r, i % 2 == 1);
    set_prices(x.on, r);
    INFO("case " << i);
    const auto placed =
        planners::plan_of_groups(x.on, planners::idle_index{x.on}, x.job, x.groups, x.rows);
    if (!placed) continue;  // its GPUs have too little memory
    ++made;
    const auto timed = planners::time_plan(x.on, x.job, placed->how, placed->where);
    REQUIRE(timed);
    const auto estimate = planners::evaluate(x.on, x.job, *timed, planners::fidelity::simulated);
    REQUIRE(estimate);
    training_simulation_options o;
    o.cluster = std::make_shared<const cluster>(x.on);
    o.job = x.job;
    const auto run = simulate_training(std::move(o), std::make_shared<by_groups>(x.groups, x.rows));
    if (!run) FAIL(run.error().text);
    auto planned = estimate->traffic;
    for (auto& [pair, bytes] : planned) bytes *= x.job.iterations;
    const auto counted = counted_by(run->traffic);
    CHECK(counted == planned);
    for (const auto& g : run->traffic) CHECK_FALSE(g.resent_to);
    const double price = planners::price_of(x.on, counted);
    CHECK(price == Approx(static_cast<double>(x.job.iterations) * estimate->traffic_per_iteration)
                       .epsilon(1e-12));
    const auto stages = timed->layout.stages;
    for (std::uint32_t s = 0; s < stages; ++s) sums += timed->layout.runs_of(s).size() > 1;
    crossing += stages > 1 && timed->layout.crosses(0, 0, 1);
    tied += x.job.model.tied_head && stages > 1 && timed->layout.crosses(0, 0, stages - 1);
  }
  CHECK(sums > 20);
  CHECK(crossing > 5);
  CHECK(tied >= 2);
}

TEST_CASE("trainings with a budget cost no more than that, with their traffic") {
  random_source r{61};
  priced_outcome all;
  for (int i = 0; i < 100; ++i) {
    INFO("case " << i);
    run_with_budget(r, all);
  }
  INFO(all.refused << " refused, " << all.finished << " finished, " << all.crossing
                   << " of them over the WAN, " << all.dearer_without
                   << " would have cost more without a budget");
  CHECK(all.refused > 5);
  CHECK(all.finished > 30);
  CHECK(all.crossing >= 3);
}

TEST_CASE("a thousand trainings with a budget cost no more than that", "[.][priced]") {
  random_source r{62};
  priced_outcome all;
  for (int i = 0; i < 1000; ++i) run_with_budget(r, all);
  WARN(all.refused << " refused, " << all.finished << " finished, " << all.crossing
                   << " of them over the WAN, " << all.dearer_without
                   << " would have cost more without a budget, " << all.over << " over it");
  CHECK(all.over == 0);
}
