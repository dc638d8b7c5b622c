#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <optional>

#include "planners/cost/plan_time.hpp"
#include "planners/cost/run_cost.hpp"
#include "planners/plans/explicit_plan.hpp"
#include "planners/plans/fits.hpp"
#include "planners/policy/adaptive_plan.hpp"
#include "planners/sample.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

job_spec trained(const model& m, std::uint32_t batch) {
  auto job = sample::job(m, batch);
  job.train.emplace();
  job.train->device = "sim";
  job.train->schedule = "megatron";
  return job;
}

struct random_case {
  cluster c;
  job_spec job;
  placed_plan plan;
};

/// Up to three types in one datacenter, and stages of all sizes on them, in any order.
std::optional<random_case> draw(random_source& r) {
  random_case x;
  x.c.datacenters.push_back({"here", ""});
  const auto types = 1 + static_cast<gpu_index>(r.below(3));
  for (gpu_index g = 0; g < types; ++g)
    sample::add_nodes(
        x.c, sample::gpu("G" + std::to_string(g), 1e6, 20.0 + static_cast<double>(r.below(300)), 1),
        4, 1 + static_cast<std::uint32_t>(r.below(4)));
  const auto layers = 2 + static_cast<std::uint32_t>(r.below(24));
  const auto stages = 1 + static_cast<std::uint32_t>(r.below(std::min(6u, layers)));
  const auto pipelines = 1u << r.below(2);
  x.job = trained(sample::gpt("m", 512u << r.below(3), layers, 8, 512u << r.below(2), 1000),
                  pipelines << (2 + r.below(3)));
  x.job.pipeline.recompute = r.below(2) == 0;
  std::vector<stage_request> wanted(stages);
  for (auto& s : wanted) s = {static_cast<gpu_index>(r.below(types)), 1, 1};
  for (std::uint32_t i = stages; i < 2 * layers; ++i) ++wanted[r.below(stages)].pieces;
  auto made = plan_of_stages(x.c, idle_index{x.c}, x.job, wanted, pipelines);
  if (!made) return {};
  x.plan = std::move(*made);
  return x;
}

}  // namespace

TEST_CASE("an iteration of two unequal stages takes the time computed by hand") {
  cluster c;
  c.datacenters.push_back({"here", ""});
  sample::add_nodes(c, sample::gpu("fast", 40, 100, 2.0), 1, 1);
  sample::add_nodes(c, sample::gpu("slow", 40, 50, 1.0), 1, 1);
  for (auto& g : c.gpus) g.memory_gbytes_s = 0;  // updates take nothing
  auto m = sample::gpt("hand", 1000, 3, 10, 100, 500);
  m.tied_head = false;
  auto job = trained(m, 8);
  job.pipeline.microbatches = 4;
  job.pipeline.recompute = false;
  const auto made = plan_of_stages(c, idle_index{c}, job, {{0, 4, 1}, {1, 2, 1}}, 1);
  REQUIRE(made);
  const double layer = 2.44e9, head = 1e8;  // FLOPs of a sample, as in cost_model_test
  const double first = 2 * 2 * layer / 45e12, second = 2 * (layer + head) / 22.5e12;
  const double send = 2.0 * 2 * 100 * 1000 / 12.5e9 + 10e-6;
  const auto t = time_plan(c, job, made->how, made->where);
  REQUIRE(t);
  CHECK(t->costs[0].forward_s == Approx(first));
  CHECK(t->costs[1].backward_s == Approx(2 * second));
  const auto closed = evaluate(c, job, *t, fidelity::closed);
  REQUIRE(closed);
  // The second stage is busy from the first activation's arrival on.
  const double busy = first + send + 4 * 3 * second + send + 2 * first;
  CHECK(closed->iteration_s == Approx(busy));
  CHECK(closed->cost_per_hour == 3.0);
  const auto simulated = evaluate(c, job, *t, fidelity::simulated);
  REQUIRE(simulated);
  // It waits once: the third activation leaves after the first gradient's backward.
  const double wait = send + 3 * first + send - 3 * second;
  // The last iteration of a window ends when the second stage has been told to update.
  const double word = 10e-6 / static_cast<double>(t->times.iterations);
  CHECK(simulated->iteration_s == Approx(busy + wait + word));
}

TEST_CASE("an update that needs the global gradient norm waits for no way between stages") {
  for (const bool apart : {false, true}) {
    cluster c;
    c.datacenters.push_back({"here", ""});
    if (apart) c.datacenters.push_back({"there", ""});
    sample::add_nodes(c, sample::gpu("fast", 40, 100, 2.0), 1, 1);
    sample::add_nodes(c, sample::gpu("slow", 40, 50, 1.0), 1, 1);
    if (apart) c.nodes[1].datacenter = 1;
    auto job = trained(sample::gpt("hand", 1000, 3, 10, 100, 500), 8);
    job.model.tied_head = false;
    const auto made = plan_of_stages(c, idle_index{c}, job, {{0, 4, 1}, {1, 2, 1}}, 1);
    REQUIRE(made);
    const auto without = time_plan(c, job, made->how, made->where);
    job.model.needs_norm = true;
    const auto with = time_plan(c, job, made->how, made->where);
    REQUIRE(without);
    REQUIRE(with);
    const double way_s =
        apart ? cost_constants{}.wan_latency_us * 1e-6 : without->times.routes[0].forward.latency_s;
    REQUIRE(way_s > 0);
    for (const auto* t : {&*with, &*without}) {
      CHECK(t->times.commit.needed());
      REQUIRE(t->times.commit.stages.size() == 2);  // none after the last stage
      CHECK(t->times.commit.stages[0] == Approx(way_s));
      CHECK(t->times.commit.peers == std::vector<double>{0, 0});
    }
    for (const auto f : {fidelity::closed, fidelity::lower_bound, fidelity::simulated}) {
      const auto longer = evaluate(c, job, *with, f), shorter = evaluate(c, job, *without, f);
      REQUIRE(longer);
      REQUIRE(shorter);
      CHECK(longer->iteration_s >= shorter->iteration_s * (1 - 1e-9));
      // The last iteration of a window ends when the sum has come back to the last stage.
      CHECK(longer->iteration_s <= shorter->iteration_s + 0.06 * way_s);
    }
  }
}

TEST_CASE("an update waits for the slowest stage of all pipelines") {
  using times = std::vector<double>;
  const commit_ways one{{0.5, 0.25, 0}, {0, 0, 0}};
  CHECK(one.arrivals({1, 2, 9}) == times{9.75, 10.25, 10.5});
  CHECK(one.arrivals({1, 6, 2}) == times{6.5, 7, 7.25});
  CHECK(one.arrivals({8, 2, 3}) == times{8, 8.5, 8.75});
  const commit_ways peers{{0.5, 0}, {0, 0, 2, 4}};
  CHECK(peers.arrivals({1, 1, 1, 1}) == times{5.5, 6, 7.5, 10});
  CHECK(peers.arrivals({9, 1, 1, 1}) == times{9, 9.5, 11, 13.5});
  CHECK(commit_ways{{0}, {0, 0.5, 0.5}}.arrivals({1, 4, 2}) == times{4.5, 5, 5});
  CHECK_FALSE(commit_ways{}.needed());
}

TEST_CASE("only stages of a training agree on their updates") {
  auto job = trained(sample::gpt("hand", 1000, 3, 10, 100, 500), 8);
  CHECK(agrees_on_updates(job));
  job.train.reset();
  CHECK_FALSE(agrees_on_updates(job));
  job.train.emplace();
  job.slots.emplace();
  CHECK_FALSE(agrees_on_updates(job));
  job.slots.reset();
  job.program.command = {"train"};  // what it does is its own
  CHECK_FALSE(agrees_on_updates(job));
}

TEST_CASE(
    "the closed form is close to the simulated schedule, for stages of all sizes and speeds") {
  random_source r{7};
  double sum = 0, worst = 0;
  int n = 0;
  while (n < 200) {
    const auto x = draw(r);
    if (!x) continue;
    const auto closed = evaluate(x->c, x->job, x->plan.how, x->plan.where, fidelity::closed);
    const auto exact = evaluate(x->c, x->job, x->plan.how, x->plan.where, fidelity::simulated);
    REQUIRE(closed);
    REQUIRE(exact);
    const double off = std::abs(closed->iteration_s / exact->iteration_s - 1);
    sum += off;
    worst = std::max(worst, off);
    ++n;
  }
  CAPTURE(sum / n, worst);
  CHECK(sum / n < 0.015);
  CHECK(worst < 0.15);
}

TEST_CASE("a plan fits if each stage fits its own GPUs") {
  cluster c;
  c.datacenters.push_back({"here", ""});
  sample::add_nodes(c, sample::gpu("large", 80, 100, 2.0), 1, 1);
  sample::add_nodes(c, sample::gpu("small", 10, 100, 1.0), 1, 1);
  const auto job = trained(sample::gpt("m", 2048, 24, 16, 1024, 50000), 4);
  const idle_index idle{c};
  const auto uneven = plan_of_stages(c, idle, job, {{0, 44, 1}, {1, 4, 1}}, 1);
  REQUIRE(uneven);
  CHECK(uneven->how.bytes_per_gpu > c.gpus[1].memory_bytes());
  CHECK(fits(c, idle, uneven->how, uneven->where));
  const auto even = plan_of_stages(c, idle, job, {{0, 24, 1}, {1, 24, 1}}, 1);
  REQUIRE(even);
  const auto no = fits(c, idle, even->how, even->where);
  REQUIRE_FALSE(no);
  CHECK(no.error().code == reason::kind::infeasible);
}

TEST_CASE("requested stages that are impossible are refused") {
  cluster c;
  c.datacenters.push_back({"here", ""});
  sample::add_nodes(c, sample::gpu("G", 80, 100, 2.0), 2, 2);
  auto job = trained(sample::gpt("m", 64, 4, 4, 64, 100), 6);
  const idle_index idle{c};
  const auto code = [&](const std::vector<stage_request>& stages, std::uint32_t pipelines) {
    const auto p = plan_of_stages(c, idle, job, stages, pipelines);
    return p ? std::optional<reason::kind>{} : p.error().code;
  };
  CHECK_FALSE(code({{0, 8, 1}}, 1));
  CHECK_FALSE(code({{0, 4, 1}, {0, 4, 1}}, 2));
  CHECK_FALSE(code({{0, 4, 2}, {0, 4, 2}}, 1));
  CHECK(code({{0, 7, 1}}, 1) == reason::kind::invalid);
  CHECK(code({{0, 9, 1}}, 1) == reason::kind::invalid);
  CHECK(code({{0, 8, 1}}, 4) == reason::kind::invalid);
  CHECK(code({{0, 4, 2}, {0, 4, 2}}, 2) == reason::kind::insufficient);
  CHECK(code({{0, 4, 3}, {0, 4, 1}}, 1) == reason::kind::invalid);  // 4 heads on 3 GPUs
}

TEST_CASE("peers' times are known once every stage has measured a forward and a backward") {
  pipeline_shape shape;
  shape.stages = 2, shape.pipelines = 2;
  measured_times t;
  t.stages = {{1, 0, 2, 3, 4}, {5, 1, 6, 0, 1}, {2, 1, 1, 1, 1}, {3, 0, 7, 5, 5}};
  const auto slow = slowest_peers(shape, t), fast = fastest_peers(shape, t);
  CHECK(slow == std::vector<step_costs>{{2, 1, 2}, {5, 1, 7}});
  CHECK(fast == std::vector<step_costs>{{1, 0, 1}, {3, 0, 6}});
  CHECK(longest_tails(shape, t) == std::vector<double>{7, 10});
  for (const auto i : {0, 1}) {
    auto unknown = t;
    unknown.stages[i].forward = unknown.stages[i + 2].forward = 0;
    CHECK(slowest_peers(shape, unknown).empty());
    unknown = t;
    unknown.stages[i].backward = 0;
    CHECK(slowest_peers(shape, unknown).size() == 2);
    CHECK(fastest_peers(shape, unknown).empty());
  }
}

TEST_CASE("an empty batch is refused") {
  cluster c;
  c.datacenters.push_back({"here", ""});
  sample::add_nodes(c, sample::gpu("G", 80, 100, 2.0), 1, 1);
  auto job = trained(sample::gpt("m", 64, 4, 4, 64, 100), 0);
  job.pipeline.rows = 1;
  auto how = sample::staged(trained(job.model, 1), 1, 1);
  how.microbatches = how.rows = 0;
  CHECK_FALSE(time_plan(c, job, how, allocation{{0, 1}}));
}

TEST_CASE(
    "the closed form of identical pipelines is the same whether all or the first are laid out") {
  int repeated = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    random_source r{seed};
    cluster c;
    c.datacenters.push_back({"here", ""});
    const std::uint32_t sizes[] = {1, 2, 4, 8, 6};
    sample::add_nodes(c, sample::gpu("G", 1e6, 20.0 + double(r.below(300)), 1.5), 48,
                      sizes[r.below(5)]);
    if (r.chance(0.2)) c.nodes[r.below(48)].inter = {"slow", 10, 5};
    auto job = trained(sample::gpt("m", 512, 12, 8, 512, 1000), 1u << (5 + r.below(4)));
    job.model.tied_head = r.chance(0.5);
    job.pipeline.recompute = r.chance(0.5);
    if (r.chance(0.3)) job.train.reset();
    const even_shape shape{1u << r.below(8), 1u << r.below(4), 1u << r.below(3)};
    const auto pools = pools_of(c, idle_index{c});
    if (shape.gpus() > pools[0].capacity) continue;
    const auto where = pack(pools[0], shape.gpus());
    const auto how = even_plan(c, pools[0], job, shape, where);
    if (!how) continue;
    if (!job.train) job.train.emplace().schedule = "megatron";
    const auto all = time_plan(c, job, *how, where);
    REQUIRE(all);
    const auto by_all = evaluate(c, job, *all, fidelity::closed);
    const auto by_first = evaluate(c, job, *how, where, fidelity::closed);
    REQUIRE(by_all);
    REQUIRE(by_first);
    INFO("seed " << seed);
    CHECK(by_first->iteration_s == by_all->iteration_s);
    CHECK(by_first->cost_per_hour == by_all->cost_per_hour);
    repeated += shape.data >= 32;
  }
  CHECK(repeated >= 20);
}

TEST_CASE("GPUs that share a program's stage sum their parts of its gradients over one card") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 2, 4);
  auto job = sample::job(sample::gpt2_small, 8);
  job.train.emplace().device = "sim";
  job.memory.emplace();
  job.pipeline.data_parallel = 2;
  for (const std::uint32_t t : {1, 2, 4}) {
    job.pipeline.tensor_parallel = t;
    const auto timed = time_plan(c, job, sample::staged(job, 1, 2), allocation{{0, t}, {1, t}});
    REQUIRE(timed);
    const double chunk = static_cast<double>(timed->costs[0].gradient_bytes) / 2;
    CHECK(timed->times.stages[0].exchange == Approx(2 * (t * chunk / 12.5e9 + 10e-6)));
  }
  // Inside a node each GPU has a link of its own.
  job.pipeline.tensor_parallel = 2;
  const auto near = time_plan(c, job, sample::staged(job, 1, 2), allocation{{0, 4}});
  REQUIRE(near);
  const double chunk = static_cast<double>(near->costs[0].gradient_bytes) / 2;
  CHECK(near->times.stages[0].exchange == Approx(2 * (chunk / 25e9 + 5e-6)));
}
