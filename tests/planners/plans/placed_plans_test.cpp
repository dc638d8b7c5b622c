#include <catch2/catch.hpp>

#include "harness/facts.hpp"
#include "messages/base/time.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/cost/program_time.hpp"
#include "planners/plans/explicit_plan.hpp"
#include "planners/plans/marp.hpp"
#include "planners/plans/trace_duration.hpp"
#include "planners/sample.hpp"

using namespace troupe;
using namespace troupe::planners;
using troupe::test::has_facts;

namespace {

/// Three nodes of two fast GPUs, two of four slow ones with more memory.
cluster mixed() {
  cluster c;
  sample::add_nodes(c, sample::gpu("fast", 40, 200, 3), 3, 2);
  sample::add_nodes(c, sample::gpu("slow", 80, 50, 1), 2, 4);
  return c;
}

job_spec trained(std::uint32_t batch) {
  auto job = sample::job(sample::gpt("m", 64, 6, 4, 64, 256), batch);
  job.train.emplace();
  job.train->device = "sim";
  return job;
}

}  // namespace

TEST_CASE("a trace's iteration is timed on its user's GPU type, node after node") {
  const auto c = mixed();
  auto job = sample::job(sample::gpt2_350m, 8);
  const auto on = [&](const allocation& where, std::uint32_t data, std::uint32_t tensor) {
    plan how;
    how.data_parallel = data;
    how.tensor_parallel = tensor;
    return estimate_iteration(c, job, how, where).iteration_s;
  };
  const auto best = [&](const allocation& where, std::uint32_t gpus) {
    double min = on(where, gpus, 1);
    for (std::uint32_t t = 2; t <= std::min(gpus, 4u) && gpus % t == 0; t *= 2)
      min = std::min(min, on(where, gpus / t, t));
    return min;
  };
  job.request.type = "fast";
  CHECK(reference_iteration_s(c, job, 1) == on({{0, 1}}, 1, 1));
  CHECK(reference_iteration_s(c, job, 4) == best({{0, 2}, {1, 2}}, 4));
  CHECK(reference_iteration_s(c, job, 6) == best({{0, 2}, {1, 2}, {2, 2}}, 6));
  CHECK(reference_iteration_s(c, job, 7) == never);
  CHECK(reference_iteration_s(c, job, 0) == never);
  job.request.type.clear();  // that with the most memory
  CHECK(reference_iteration_s(c, job, 4) == best({{3, 4}}, 4));
  CHECK(reference_iteration_s(c, job, 8) == best({{3, 4}, {4, 4}}, 8));
  CHECK(reference_iteration_s(c, job, 9) == never);
  job.global_batch = 0;  // never planned
  CHECK(reference_iteration_s(c, job, 1) == never);
}

TEST_CASE("requested stages take the first nodes with whole groups of their type") {
  const auto c = mixed();
  idle_index idle{c};
  const auto job = trained(16);
  const auto made = plan_of_stages(c, idle, job, {{0, 4, 2}, {1, 4, 1}, {0, 4, 1}}, 2);
  REQUIRE(made);
  CHECK(made->where == allocation{{0, 2}, {1, 2}, {3, 2}, {2, 2}});
  CHECK(made->how.gpu_types == std::vector<gpu_index>{0, 1});
  CHECK(made->how.tensor_parallel == 2);
  CHECK(made->how.pipeline_parallel == 3);
  CHECK(made->how.stages[2].first == 8);
  double max = 0;
  for (const auto& s : made->how.stages) max = std::max(max, s.bytes_per_gpu);
  CHECK(made->how.bytes_per_gpu == max);
  CHECK(made->how.cost_per_hour == 6 * 3 + 2 * 1);
  const auto text = [&](const std::vector<stage_request>& stages, std::uint32_t pipelines) {
    const auto none = plan_of_stages(c, idle, job, stages, pipelines);
    REQUIRE_FALSE(none);
    return none.error().text;
  };
  CHECK(has_facts(text({{0, 12, 2}}, 4), {"4 pipelines", "1 more", "2 fast"}));
  idle.set_idle(1, 1);
  CHECK(has_facts(text({{0, 12, 2}}, 4), {"4 pipelines", "2 more", "2 fast"}));
  CHECK(has_facts(text({{1, 12, 1}}, 3), {"16", "3 pipelines"}));
}

TEST_CASE("replicas in several datacenters exchange gradients over the slowest link among them") {
  cluster c;
  sample::add_nodes(c, sample::a100_80, 3, 1);
  c.datacenters = {{"a", ""}, {"b", ""}, {"c", ""}};
  for (node_index n = 0; n < 3; ++n) c.nodes[n].datacenter = n;
  c.wan.push_back({0, 1, 80, 5, 0});
  c.wan.push_back({2, 1, 20, 2, 0});
  c.wan.push_back({2, 0, 10, 8, 0});
  const auto job = sample::job(sample::gpt2_350m, 12);
  const auto exchanged_s = [&](const allocation& where) {
    plan how;
    how.data_parallel = static_cast<std::uint32_t>(where.size());
    return estimate_iteration(c, job, how, where);
  };
  const double bytes = 2.0 * 354'823'168;
  const auto ring = [&](double members, double gbps, double rtt_ms) {
    return 2 * (members - 1) / members * bytes / (gbps * 1e9 / 8) +
           2 * (members - 1) * rtt_ms * 1e-3 / 2;
  };
  const auto expect = [&](const allocation& where, double gbps, double rtt_ms) {
    const auto e = exchanged_s(where);
    const double hidden = 0.5 * (2.0 / 3) * e.compute_s;
    CHECK(e.data_s == Approx(ring(static_cast<double>(where.size()), gbps, rtt_ms) - hidden));
  };
  expect({{0, 1}, {1, 1}}, 5, 80);
  expect({{1, 1}, {2, 1}}, 2, 20);
  expect({{0, 1}, {2, 1}}, 8, 10);
  expect({{0, 1}, {1, 1}, {2, 1}}, 2, 80);
  c.wan.pop_back();
  const cost_constants k;
  expect({{0, 1}, {2, 1}}, k.wan_gbps, k.wan_latency_us * 2e-3);
}

TEST_CASE("a plan's price and speed are the lowest among the types that can run it") {
  const auto c = mixed();
  auto job = sample::job(sample::gpt2_350m, 8);
  job.objective = "fastest";
  const auto plans = marp(c, job);
  REQUIRE(plans);
  bool several = false;
  for (const auto& p : *plans) {
    double price = 1e300, speed = 1e300;
    for (const auto g : p.gpu_types) {
      const auto e = estimate_iteration(c, job, p, pack(c, nodes_of_type(c, g), p.gpus()));
      price = std::min(price, e.cost_per_hour);
      speed = std::min(speed, e.samples_per_s);
    }
    several |= p.gpu_types.size() > 1;
    CHECK(p.cost_per_hour == price);
    CHECK(p.samples_per_s == speed);
  }
  CHECK(several);
}

TEST_CASE("an iteration's time is averaged over the trainer's window") {
  const auto c = mixed();
  const auto iterations = [&](std::uint64_t all, std::uint32_t every) {
    auto job = trained(16);
    job.iterations = all;
    job.train->replan_every = every;
    const auto made = plan_of_stages(c, idle_index{c}, job, {{0, 6, 1}, {1, 6, 1}}, 1);
    REQUIRE(made);
    return time_plan(c, job, made->how, made->where)->times.iterations;
  };
  CHECK(iterations(1000, 0) == 100);
  CHECK(iterations(1000, 7) == 7);
  CHECK(iterations(5, 7) == 5);
  CHECK(iterations(5, 0) == 5);
}
