#include <catch2/catch.hpp>

#include <algorithm>
#include <map>

#include "harness/facts.hpp"
#include "planners/cost/program_time.hpp"
#include "planners/plans/marp.hpp"
#include "planners/sample.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

// The paper's inequality, written a second time.
double formula(const model& m, double B, double d, double t) {
  const double V = m.vocabulary, h = m.hidden, l = m.layers, a = m.heads, s = m.sequence;
  const double W = V * h + l * (12 * h * h + 13 * h);
  return 20 * W / t + s * B * h * l * (10 / d + 24 / (d * t) + 5 * a * s / (d * h * t));
}

}  // namespace

TEST_CASE(
    "MARP finds the plans of a plain enumeration in the objective's order, in 1,000 random cases") {
  random_source r(3);
  const model models[] = {sample::gpt2_7b, sample::gpt2_350m, sample::gpt2_small,
                          sample::gpt("2.7b", 2560, 32, 32), sample::gpt("odd", 1200, 10, 12, 512)};
  int with_plans = 0;
  for (int i = 0; i < 1000; ++i) {
    auto c = sample::random_cluster(r);
    c.settings.memory_headroom = r.chance(0.3) ? 0.1 : 0;
    auto job = sample::job(models[r.below(5)], 1 + std::uint32_t(r.below(16)));
    const char* objectives[] = {"efficient", "fastest", "cheapest"};
    job.objective = objectives[r.below(3)];
    job.microbatches = 1;  // else it may accumulate gradients (accumulation_test.cpp)

    std::uint32_t node_gpus = 0;
    for (const auto& n : c.nodes) node_gpus = std::max(node_gpus, n.gpus);
    std::map<std::pair<std::uint32_t, std::uint32_t>, double> expected_plans;  // (d, t): bytes
    for (std::uint32_t t = 1; t <= node_gpus; ++t) {
      if ((t & (t - 1)) != 0 || job.model.heads % t != 0) continue;
      for (std::uint32_t d = 1; d <= job.global_batch; ++d) {
        if (job.global_batch % d != 0) continue;
        const double bytes =
            formula(job.model, job.global_batch, d, t) * (1 + c.settings.memory_headroom);
        std::uint32_t gpus = 0;
        for (const auto& n : c.nodes) gpus += c.gpus[n.gpu].memory_gb * 1e9 > bytes ? n.gpus : 0;
        if (gpus >= d * t) expected_plans[{d, t}] = bytes;
      }
    }
    const auto plans = marp(c, job);
    REQUIRE(plans.has_value() == !expected_plans.empty());
    if (!plans) {
      REQUIRE(plans.error().code == reason::kind::infeasible);
      continue;
    }
    ++with_plans;
    REQUIRE(plans->size() == expected_plans.size());
    double last = std::numeric_limits<double>::infinity();
    for (const auto& p : *plans) {
      const auto it = expected_plans.find({p.data_parallel, p.tensor_parallel});
      REQUIRE(it != expected_plans.end());
      REQUIRE(p.bytes_per_gpu == Approx(it->second).epsilon(1e-12));
      double slowest = std::numeric_limits<double>::infinity(), dearest = 0;
      for (gpu_index g = 0; g < c.gpus.size(); ++g) {
        const bool listed = std::ranges::find(p.gpu_types, g) != p.gpu_types.end();
        REQUIRE(listed == (c.gpus[g].memory_bytes() > p.bytes_per_gpu));
        if (!listed) continue;
        const auto e = estimate_iteration(c, job, p, pack(c, nodes_of_type(c, g), p.gpus()));
        slowest = std::min(slowest, e.samples_per_s);
        dearest = std::max(dearest, e.cost_per_hour / e.samples_per_s);
      }
      REQUIRE(p.samples_per_s == Approx(slowest));
      const double score = job.objective == "fastest"    ? slowest
                           : job.objective == "cheapest" ? -dearest
                                                         : slowest / p.gpus();
      REQUIRE(score <= last + 1e-9 * std::abs(score));
      last = score;
    }
  }
  CHECK(with_plans > 500);
}

TEST_CASE("MARP says why there is no plan") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 1, 4);
  auto job = sample::job(sample::gpt2_7b, 1);
  job.microbatches = 1;
  const auto text = [&] {
    const auto plans = marp(c, job);
    return plans ? std::string("there are plans") : plans.error().text;
  };
  CHECK(text() == "there are plans");
  job.global_batch = 2;
  CHECK(troupe::test::has_facts(text(), {"8 GPUs", "36.7 GB", "4"}));
  job.model.hidden = 8192;
  CHECK(text().ends_with("GB per GPU; the largest here has 40 GB"));
  job = sample::job(sample::gpt2_small, 8);
  job.limits.deadline_s = 1e-3;
  CHECK(text().starts_with("no plan meets deadline_s (0.001 s); the fastest takes "));
  job.limits.deadline_s = 1e9;
  job.limits.budget = 1e-9;
  CHECK(text().starts_with(
      "no plan stays within the budget of 1e-09; the cheapest that is fast enough costs "));
  job.limits.budget.reset();
  job.limits.slo_s = 1e-3;
  CHECK(text().starts_with("no plan meets slo_s (0.001 s); the fastest takes "));
  job.limits.slo_s.reset();
  job.objective = "nicest";
  CHECK(troupe::test::has_facts(text(), {"nicest", "efficient", "fastest", "cheapest"}));
  job.objective = "efficient";
  job.global_batch = 0;
  CHECK(text() == "global_batch is 0");
}

TEST_CASE("a deadline keeps only plans that meet it on their slowest type") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 4, 8);
  auto job = sample::job(sample::gpt2_350m, 32);
  const auto all = marp(c, job);
  REQUIRE(all);
  const auto run_s = [&](const plan& p) {
    return double(job.iterations) * job.global_batch / p.samples_per_s;
  };
  job.limits.deadline_s = run_s((*all)[all->size() / 2]);
  const auto some = marp(c, job);
  REQUIRE(some);
  CHECK(some->size() < all->size());
  for (const auto& p : *some) CHECK(run_s(p) <= *job.limits.deadline_s * (1 + 1e-9));
}
