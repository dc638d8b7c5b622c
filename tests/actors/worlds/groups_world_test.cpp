#include <catch2/catch.hpp>

#include <cmath>
#include <memory>
#include <numeric>

#include "actors/worlds/random_groups.hpp"
#include "planners/cost/plan_time.hpp"
#include "studies/training_simulation.hpp"

// Plans whose pipelines are groups, in virtual time: the whole graph carries them out.

using namespace troupe;
using namespace troupe::studies;
using harness::by_groups, harness::random_groups;

namespace {

/// Bytes that an iteration's sums send over the WAN: a stage's gradients once in each direction of
/// each boundary between two runs of pipelines; and 8 bytes to and from each stage that agrees on
/// the update with one of the first pipeline elsewhere.
std::uint64_t sums_over_wan(const planners::timed_plan& t, bool tied) {
  std::uint64_t bytes = 0;
  const auto stages = t.layout.stages;
  for (std::uint32_t s = 0; s < stages; ++s) {
    const auto& k = t.costs[s];
    const bool copy = tied && stages > 1 && s + 1 == stages;
    const auto summed = k.gradient_bytes - (copy ? k.tied_bytes : 0);
    bytes += 2 * (t.layout.runs_of(s).size() - 1) * summed;
    for (std::uint32_t p = 1; p < t.layout.pipelines; ++p)
      if (t.layout.datacenter_of(p, s) != t.layout.datacenter_of(0, s)) bytes += 2 * 8;
  }
  return bytes;
}

}  // namespace

TEST_CASE("groups of pipelines take the time of their plan's estimate, and its bytes of the WAN") {
  random_source r{4};
  int several = 0, near = 0;
  for (int i = 0; i < 60; ++i) {
    const auto x = random_groups(r);
    INFO("case " << i);
    const auto placed =
        planners::plan_of_groups(x.on, planners::idle_index{x.on}, x.job, x.groups, x.rows);
    REQUIRE(placed);
    const auto timed = planners::time_plan(x.on, x.job, placed->how, placed->where);
    REQUIRE(timed);
    const auto estimate = planners::evaluate(x.on, x.job, *timed, planners::fidelity::simulated);
    REQUIRE(estimate);
    training_simulation_options o;
    o.cluster = std::make_shared<const cluster>(x.on);
    o.job = x.job;
    const auto run = simulate_training(std::move(o), std::make_shared<by_groups>(x.groups, x.rows));
    if (!run) FAIL(run.error().text);
    const auto& report = run->report;
    CHECK(report.pipelines == placed->how.data_parallel);
    CHECK(report.planned_s == Approx(estimate->iteration_s).epsilon(1e-9));
    REQUIRE(report.iterations.size() == x.job.iterations);
    double sum_s = 0;
    for (const auto& it : report.iterations) sum_s += it.end_s - it.begin_s;
    // The estimate begins the sum over datacenters when all of them have their parts; a first one
    // that is ready earlier has sent its chunks by then.
    const double mean_s = sum_s / static_cast<double>(x.job.iterations);
    CHECK(mean_s < 1.1 * estimate->iteration_s);
    CHECK(mean_s > 0.8 * estimate->iteration_s);
    near += std::abs(mean_s / estimate->iteration_s - 1) < 0.1;
    CHECK(report.wan_bytes == x.job.iterations * sums_over_wan(*timed, x.job.model.tied_head));
    several += x.groups.size() > 1;
  }
  CHECK(several > 20);
  CHECK(near >= 57);  // of 60
}

TEST_CASE("peers in two datacenters agree on updates beside their running sums") {
  constexpr double way_s = 0.02;
  for (const std::uint32_t stages : {1u, 2u}) {
    CAPTURE(stages);
    random_source r{5};
    auto x = random_groups(r);
    auto& c = x.on;
    c.datacenters.resize(1);
    c.datacenters.push_back({"there", ""});
    c.nodes.resize(16);
    for (std::size_t n = 8; n < 16; ++n) c.nodes[n].datacenter = 1;
    c.wan = {{0, 1, 1000 * way_s, 5, 0}};
    x.groups.assign(2, {});
    x.rows = 1;
    for (std::uint32_t d = 0; d < 2; ++d) {
      auto& g = x.groups[d];
      g.pipelines = 1, g.microbatches = 4;
      for (std::uint32_t s = 0; s < stages; ++s)
        g.stages.push_back({16 / stages * s, 16 / stages, 1, gpu_index{0}, 0, d});
    }
    x.job.global_batch = 8;
    x.job.pipeline.stages = stages;
    x.job.iterations = 20;
    x.job.model.tied_head = false;
    x.job.model.needs_norm = false;
    const auto placed = planners::plan_of_groups(c, planners::idle_index{c}, x.job, x.groups, 1);
    REQUIRE(placed);
    auto timed = planners::time_plan(c, x.job, placed->how, placed->where);
    REQUIRE(timed);
    const auto with = planners::evaluate(c, x.job, *timed, planners::fidelity::simulated);
    timed->times.commit = {};
    const auto without = planners::evaluate(c, x.job, *timed, planners::fidelity::simulated);
    REQUIRE(with);
    REQUIRE(without);
    CAPTURE(with->iteration_s);
    CHECK(with->iteration_s == Approx(without->iteration_s).epsilon(0.001));
    training_simulation_options o;
    o.cluster = std::make_shared<const cluster>(c);
    o.job = x.job;
    const auto run = simulate_training(std::move(o), std::make_shared<by_groups>(x.groups, 1));
    if (!run) FAIL(run.error().text);
    double sum_s = 0;
    for (const auto& it : run->report.iterations) sum_s += it.end_s - it.begin_s;
    CHECK(sum_s / 20 == Approx(with->iteration_s).epsilon(0.02));
  }
}
