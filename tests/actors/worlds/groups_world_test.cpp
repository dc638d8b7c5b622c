#include <catch2/catch.hpp>

#include <cmath>
#include <memory>
#include <numeric>

#include "messages/base/random.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/plans/explicit_plan.hpp"
#include "studies/training_simulation.hpp"

// Plans whose pipelines are groups, in virtual time: the whole graph carries them out.

using namespace troupe;
using namespace troupe::studies;

namespace {

/// Places every job by groups that were chosen before.
class by_groups final : public planners::policy {
 public:
  by_groups(std::vector<pipeline_group> groups, std::uint32_t rows)
      : groups_{std::move(groups)}, rows_{rows} {}

  std::string_view name() const override { return "by-groups"; }
  reason why_waiting(const planners::snapshot&, job_id) const override { return {}; }
  bool places(const job_spec&, bool) const override { return true; }
  expected<std::vector<plan>> plans_of(const cluster& c, const job_spec& job,
                                       planners::planning_budget&) const override {
    auto made = planners::plan_of_groups(c, planners::idle_index{c}, job, groups_, rows_);
    if (!made) return refuse(made.error());
    return std::vector{made->how};
  }
  std::vector<planners::decision> decide(const planners::snapshot& s,
                                         random_source&) const override {
    std::vector<planners::decision> out;
    for (const auto& [id, j] : s.waiting)
      if (auto made = planners::plan_of_groups(s.cluster, s.idle, *j.spec, groups_, rows_)) {
        out.push_back(planners::start_job(id, made->how, made->where));
        out.back().expected.emplace();
        break;
      }
    return out;
  }

 private:
  std::vector<pipeline_group> groups_;
  std::uint32_t rows_;
};

/// Pipelines of random shares in up to three datacenters.
struct grouped_case {
  cluster on;
  job_spec job;
  std::vector<pipeline_group> groups;
  std::uint32_t rows = 1;
};

grouped_case random_groups(random_source& r) {
  grouped_case x;
  auto& c = x.on;
  c.name = "groups";
  gpu_type gpu;
  gpu.name = "G";
  gpu.memory_gb = 1e6;
  gpu.fp16_tflops = 20.0 + static_cast<double>(r.below(300));
  gpu.memory_gbytes_s = 1000;
  c.gpus = {gpu};
  const auto sites = 1 + static_cast<std::uint32_t>(r.below(3));
  for (std::uint32_t d = 0; d < sites; ++d) {
    c.datacenters.push_back({"d" + std::to_string(d), ""});
    for (int n = 0; n < 16; ++n)
      c.nodes.push_back(
          {"n" + std::to_string(c.nodes.size()), d, 0, 1, {"", 200, 2}, {"", 50, 20}});
    for (std::uint32_t other = 0; other < d; ++other)
      c.wan.push_back({other, d, 5 + 20 * r.uniform(), 1 + 4 * r.uniform(), 0});
  }
  auto& m = x.job.model;
  m.name = "m";
  m.hidden = 512, m.layers = 8, m.heads = 8, m.sequence = 512, m.vocabulary = 1000;
  m.tied_head = r.chance(0.5);
  m.needs_norm = r.chance(0.3);
  const auto stages = 1 + static_cast<std::uint32_t>(r.below(3));
  x.rows = 1 + static_cast<std::uint32_t>(r.below(2));
  std::uint32_t microbatches = 0;
  for (std::uint32_t d = 0; d < sites; ++d) {
    auto& g = x.groups.emplace_back();
    g.pipelines = 1 + static_cast<std::uint32_t>(r.below(3));
    g.microbatches = 1 + static_cast<std::uint32_t>(r.below(6));
    microbatches += g.pipelines * g.microbatches;
    for (std::uint32_t s = 0; s < stages; ++s) {
      const auto first = 16 * s / stages, end = 16 * (s + 1) / stages;
      g.stages.push_back({first, end - first, 1, gpu_index{0}, 0, d});
    }
  }
  x.job.name = "groups";
  x.job.global_batch = microbatches * x.rows;
  x.job.iterations = 1 + r.below(5);
  x.job.train.emplace();
  x.job.train->device = "sim";
  x.job.train->schedule = "megatron";
  x.job.pipeline.stages = stages;
  return x;
}

/// Bytes that an iteration's sums send over the WAN: a stage's gradients once in each direction of
/// each boundary between two runs of pipelines.
std::uint64_t sums_over_wan(const planners::timed_plan& t, bool tied) {
  std::uint64_t bytes = 0;
  const auto stages = t.layout.stages;
  for (std::uint32_t s = 0; s < stages; ++s) {
    const auto& k = t.costs[s];
    const bool copy = tied && stages > 1 && s + 1 == stages;
    const auto summed = k.gradient_bytes - (copy ? k.tied_bytes : 0);
    bytes += 2 * (t.layout.runs_of(s).size() - 1) * summed;
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
