#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "messages/base/time.hpp"
#include "planners/baselines/elasticflow.hpp"
#include "planners/baselines/gavel.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/policy/adaptive_plan.hpp"
#include "planners/scene.hpp"

// Gandiva, Gavel and ElasticFlow, as Crius' evaluation has them.

using namespace troupe;
using namespace troupe::planners;
using scene_of_policies::carry_out;
using scene_of_policies::played_policy;
using scene_of_policies::scene;

namespace {

cluster two_kinds(std::uint32_t fast, std::uint32_t slow) {
  cluster c;
  c.name = "two kinds";
  sample::add_nodes(c, sample::gpu("A", 40, 300), fast, 2);
  sample::add_nodes(c, sample::gpu("B", 40, 100), slow, 2);
  return c;
}

cluster fast_links(std::uint32_t nodes) {
  cluster c;
  c.name = "fast links";
  sample::add_nodes(c, sample::gpu("A", 40, 300), nodes, 4);
  for (auto& n : c.nodes) n.intra = sample::nvlink;
  return c;
}

job_spec some_work(std::uint32_t gpus, const std::string& type = {}) {
  auto j = sample::job(sample::gpt2_350m, 128, gpus);
  j.iterations = 100'000;
  j.request.type = type;
  return j;
}

}  // namespace

TEST_CASE("Gavel's allocation gives the fast type to the job that gains most from it") {
  // Two jobs, one GPU of each of two types. Together 4 + 1 is more than 2 + 2.
  const std::vector<gavel_job> jobs{{1, 1, {4, 1}}, {1, 1, {2, 1}}};
  const auto x = gavel_allocation(jobs, {1, 1}, gavel_objective::max_sum);
  // Each over its own best: job 0 loses 3/4 on the slow type, job 1 half.
  CHECK(x[0][0] == Approx(1));
  CHECK(x[1][1] == Approx(1));
  CHECK(x[0][1] == Approx(0).margin(1e-9));
}

TEST_CASE("Gavel's fair allocation maximizes the least throughput relative to an equal share") {
  const std::vector<gavel_job> jobs{{1, 1, {4, 1}}, {1, 1, {1, 1.1}}};
  const auto x = gavel_allocation(jobs, {1, 1}, gavel_objective::max_min);
  const auto rate = [&](std::size_t i) {
    return (x[i][0] * jobs[i].rates[0] + x[i][1] * jobs[i].rates[1]) /
           ((jobs[i].rates[0] + jobs[i].rates[1]) / 2);
  };
  // Both are better off than with half of each type; with less of it job 1 would be worse off.
  CHECK(rate(0) > 1);
  CHECK(rate(1) == Approx(1.1 / 1.05));
  for (const auto& row : x) CHECK(row[0] + row[1] <= 1 + 1e-9);
  // Three jobs for one GPU: a third of the time each, alike or not.
  const auto y = gavel_allocation({{1, 1, {1}}, {1, 2, {5}}}, {1}, gavel_objective::max_min);
  CHECK(y[0][0] == Approx(1.0 / 3));
  CHECK(y[1][0] == Approx(1.0 / 3));
}

TEST_CASE("Gavel's shares stay within the types' GPUs, on random jobs") {
  random_source r{5};
  for (int i = 0; i < 50; ++i) {
    std::vector<gavel_job> jobs(1 + r.below(8));
    std::vector<double> capacity{1 + double(r.below(8)), 1 + double(r.below(8))};
    for (auto& j : jobs) j = {double(1U << r.below(3)), 1, {0.1 + r.uniform(), r.uniform()}};
    for (const auto objective : {gavel_objective::max_sum, gavel_objective::max_min}) {
      const auto x = gavel_allocation(jobs, capacity, objective);
      for (std::size_t t = 0; t < 2; ++t) {
        double used = 0;
        for (std::size_t j = 0; j < jobs.size(); ++j) used += x[j][t] * jobs[j].gpus;
        CHECK(used <= capacity[t] + 1e-6);
      }
      for (const auto& row : x) CHECK(row[0] + row[1] <= 1 + 1e-6);
    }
  }
}

TEST_CASE("under Gavel jobs take turns when there are too many for the GPUs") {
  played_policy g{two_kinds(1, 0), "gavel-fair"};
  g.s.add(1, some_work(2)).submitted_s = g.s.now_s;
  g.s.add(2, some_work(2)).submitted_s = g.s.now_s;
  std::map<job_id, int> rounds;
  for (int i = 0; i < 20; ++i) {
    g.settle();
    CHECK(g.gpus(1) + g.gpus(2) == 2);
    for (auto& [id, j] : g.s.running) {
      ++rounds[id];
      j.progress.iterations_done += 2000;
    }
    g.s.now_s += 360;
  }
  CHECK(rounds[1] >= 6);
  CHECK(rounds[2] >= 6);
}

TEST_CASE(
    "ElasticFlow's minimum share is the fewest GPUs that meet the deadline, after earlier jobs") {
  // Section 4.1's case of a concave curve: 1 GPU does 1, 2 do 1.5, 4 do 2.
  const std::vector<scaling_point> curve{{1, 1}, {2, 1.5}, {4, 2}};
  CHECK(minimum_shares({{curve, 10, 10}}, 4) == std::vector<std::uint32_t>{1});
  CHECK(minimum_shares({{curve, 10, 7}}, 4) == std::vector<std::uint32_t>{2});
  CHECK(minimum_shares({{curve, 10, 5}}, 4) == std::vector<std::uint32_t>{4});
  CHECK_FALSE(minimum_shares({{curve, 10, 4.9}}, 4).has_value());
  // Beside a job that has one GPU until 3, another has four GPUs only after that.
  CHECK(minimum_shares({{curve, 3, 3}, {curve, 10, 8.5}}, 4) == std::vector<std::uint32_t>{1, 2});
  CHECK(minimum_shares({{curve, 3, 3}, {curve, 8, 4}, {curve, 6, 7.1}}, 4) == std::nullopt);
  CHECK(minimum_shares({{curve, 3, 3}, {curve, 6, 7.1}}, 1) == std::nullopt);
  CHECK(minimum_shares({{curve, 3, 3}, {curve, 4, 7.1}}, 1) == std::vector<std::uint32_t>{1, 1});
}

TEST_CASE("ElasticFlow gives remaining GPUs to the job that gains most per GPU") {
  const std::vector<scaling_point> steep{{1, 1}, {2, 1.9}, {4, 3.6}},
      flat{{1, 1}, {2, 1.2}, {4, 1.3}};
  CHECK(elastic_shares({{steep, 1, never}, {flat, 1, never}}, {0, 0}, 6) ==
        std::vector<std::uint32_t>{4, 2});
  CHECK(elastic_shares({{steep, 1, never}, {flat, 1, never}}, {1, 4}, 6) ==
        std::vector<std::uint32_t>{2, 4});
  CHECK(elastic_shares({{steep, 1, never}, {flat, 1, never}}, {0, 0}, 1) ==
        std::vector<std::uint32_t>{1, 0});
}

TEST_CASE("elasticflow-ls shrinks running jobs for an arriving one, on its user's type") {
  played_policy e{two_kinds(2, 2), "elasticflow-ls"};
  e.s.add(1, some_work(2, "B"));
  e.settle();
  CHECK(e.type(1) == "B");
  CHECK(e.gpus(1) == 4);
  e.s.add(2, some_work(2, "B"));
  e.settle();
  CHECK(e.gpus(1) == 2);
  CHECK(e.gpus(2) == 2);
  CHECK(e.type(2) == "B");
}

TEST_CASE(
    "elasticflow-ls repacks a type whose idle GPUs are too scattered, then changes nothing more") {
  cluster c;
  c.name = "nodes of four";
  sample::add_nodes(c, sample::gpu("A", 40, 300), 2, 4);
  played_policy e{std::move(c), "elasticflow-ls"};
  auto small = some_work(2, "A");
  small.limits.max_gpus = 2;
  for (job_id id = 1; id <= 4; ++id) e.s.add(id, small);
  e.settle();
  for (job_id id = 1; id <= 4; ++id) REQUIRE(e.gpus(id) == 2);
  const auto node = [&](job_id id) { return e.s.running.at(id).where.at(0).node; };
  // One job of each node ends: four GPUs are idle, two on each.
  const job_id other = node(2) == node(1) ? 2 : node(3) == node(1) ? 3 : 4;
  const job_id last = other == 4 ? 3 : 4;
  for (const auto id : {other, last}) {
    for (const auto& share : e.s.running.at(id).where)
      e.s.idle.set_idle(share.node, e.s.idle.idle(share.node) + share.gpus);
    e.s.running.erase(id);
  }
  auto large = some_work(4, "A");
  large.limits.max_gpus = 4;
  e.s.add(5, large);
  e.settle();
  CHECK(e.gpus(5) == 4);
  std::uint32_t others = 0;
  for (job_id id = 1; id <= 4; ++id) others += e.gpus(id);
  CHECK(others == 4);
  random_source r{1};
  CHECK(e.by->decide(e.s.view(), r).empty());
}

TEST_CASE("elasticflow promises nobody the GPUs of a program of unknown length") {
  cluster one;
  sample::add_nodes(one, sample::gpu("A", 40, 300), 1, 1);
  auto program = sample::job(sample::gpt2_small, 8, 1);
  program.program.command = {"train"};
  program.request.exact = true;
  program.limits.deadline_s = 50'000;
  auto job = sample::job(sample::gpt2_small, 8, 1);
  job.iterations = 10;
  job.limits.deadline_s = 45'000;
  for (const std::uint64_t iterations : {1, 1000}) {
    INFO(iterations);
    program.iterations = iterations;
    played_policy e{one, "elasticflow"};
    e.s.now_s = 100;
    REQUIRE_FALSE(e.s.add(1, program).plans->empty());
    REQUIRE_FALSE(e.s.add(2, job).plans->empty());
    const auto decisions = e.decide();
    const bool given_up = std::ranges::any_of(decisions, [](const decision& d) {
      return d.job == 2 && d.what == decision::kind::give_up;
    });
    // A program of 1,000 iterations ends long before.
    CHECK(given_up == (iterations == 1));
  }
}

TEST_CASE("elasticflow drops a job that cannot meet its deadline, and admits one that can") {
  played_policy e{two_kinds(1, 0), "elasticflow"};
  auto job = some_work(2, "A");
  job.limits.deadline_s = 1;
  e.s.add(1, job).submitted_s = e.s.now_s;
  random_source r{1};
  const auto d = e.by->decide(e.s.view(), r);
  REQUIRE(d.size() == 1);
  CHECK(d[0].what == decision::kind::give_up);
  e.s.waiting.clear();
  job.limits.deadline_s = 1e9;
  e.s.add(2, job).submitted_s = e.s.now_s;
  e.settle();
  CHECK(e.gpus(2) == 2);
}

TEST_CASE(
    "gandiva starts with the user's count, grows on idle GPUs, and shrinks for the next job") {
  played_policy g{two_kinds(4, 0), "gandiva"};
  g.s.add(1, some_work(4));
  g.settle();
  CHECK(g.gpus(1) == 4);
  g.settle();
  CHECK(g.gpus(1) == 8);
  g.s.add(2, some_work(4));
  g.settle();
  CHECK(g.gpus(1) == 4);
  CHECK(g.gpus(2) == 4);
}

TEST_CASE("gandiva counts what is idle in one pool when it says why a job waits") {
  played_policy g{two_kinds(1, 2), "gandiva"};
  g.s.add(1, some_work(4));
  for (node_index n = 0; n < 3; ++n) g.s.idle.set_idle(n, 1);
  CHECK(scene_of_policies::why_of(*g.by, g.s, 1).text == "requests 4 GPUs of one type; 2 are idle");
  auto two = some_work(2);
  g.s.add(2, two);
  CHECK(scene_of_policies::why_of(*g.by, g.s, 2).text ==
        "requests 2 GPUs of one type; 2 are idle, but of too many nodes");
}

TEST_CASE(
    "the adaptive plan is the best of all even shapes, and at least as fast as data parallelism") {
  const auto c = two_kinds(4, 4);
  const auto pools = pools_of(c, idle_index{c});
  auto job = sample::job(sample::gpt("gpt2-2.7b", 2560, 32, 32), 128, 8);
  const auto best = adaptive_plan(c, pools[0], job, 8);
  REQUIRE(best);
  CHECK(best->gpus() == 8);
  int shapes = 0;
  for (std::uint32_t d = 1; d <= 8; d *= 2)
    for (std::uint32_t t = 1; d * t <= 8; t *= 2)
      if (const auto p = even_plan(c, pools[0], job, {d, 8 / (d * t), t})) {
        ++shapes;
        CHECK(p->samples_per_s <= best->samples_per_s);
      }
  CHECK(shapes >= 3);
  // On one GPU of each of four nodes no two can share a stage.
  allocation scattered;
  for (node_index n = 0; n < 4; ++n) scattered.push_back({n, 1});
  const auto apart = adaptive_plan(c, pools[0], job, scattered);
  REQUIRE(apart);
  CHECK(apart->tensor_parallel == 1);
  CHECK(fits(c, idle_index{c}, *apart, scattered));
  const auto alone = data_parallel_plan(c, pools[0], job, 8);
  REQUIRE(alone);
  CHECK(alone->samples_per_s <= best->samples_per_s);
  const auto unit = 8 / alone->data_parallel;
  CHECK(unit > 1);  // one GPU does not hold it
  CHECK_FALSE(adaptive_plan(c, pools[0], job, 1).has_value());
}

TEST_CASE("with adaptive parallelism a policy's starts keep their GPUs, as pipelines that fit") {
  const std::shared_ptr<const policy> plain = make_policy("fcfs");
  const auto adaptive = with_adaptive_parallelism(plain);
  CHECK(adaptive->name() == "fcfs");
  scene s{two_kinds(4, 0)};
  auto large = sample::job(sample::gpt("gpt2-2.7b", 2560, 32, 32), 128, 4);
  large.request.type = "A";
  s.add(1, large);
  random_source r{1};
  const auto a = plain->decide(s.view(), r), b = adaptive->decide(s.view(), r);
  REQUIRE(a.size() == 1);
  REQUIRE(b.size() == 1);
  CHECK(a[0].where == b[0].where);
  REQUIRE(a[0].starts());
  CHECK_FALSE(b[0].how.stages.empty());
  CHECK(fits(s.cluster, s.idle, b[0].how, b[0].where));
}

TEST_CASE("with adaptive parallelism no start is slower than an even shape on the same GPUs") {
  const auto adaptive = with_adaptive_parallelism(make_policy("fcfs"));
  random_source r{3};
  std::size_t starts = 0, scattered = 0, pipelines = 0, tensor = 0, beside_alike = 0;
  for (int i = 0; i < 60; ++i) {
    CAPTURE(i);
    const bool tight = r.chance(0.3);  // one row, and fast links: there tensor parallelism is best
    scene s{tight ? fast_links(4) : two_kinds(4, 4)};
    for (node_index n = 0; n < s.cluster.nodes.size(); ++n)
      if (!tight && r.chance(0.5)) s.idle.set_idle(n, 1);
    auto job = some_work(1U << r.below(3), tight || r.chance(0.5) ? "A" : "B");
    if (tight)
      job.global_batch = 1;
    else if (r.chance(0.5))
      job.model = sample::gpt("gpt2-2.7b", 2560, 32, 32);
    // Alike, and on other nodes: what is best on those of the first need not be so here.
    const auto plans = s.add(1, job).plans;
    s.add(2, job).plans = plans;
    std::vector<std::vector<std::uint32_t>> granted;
    for (const auto& d : adaptive->decide(s.view(), r)) {
      if (d.what != decision::kind::start) continue;
      ++starts;
      auto& gpus_of_nodes = granted.emplace_back();
      for (const auto& share : d.where) gpus_of_nodes.push_back(share.gpus);
      scattered += d.where.size() > 1 && total_gpus(d.where) < 2 * d.where.size();
      pipelines += d.how.pipeline_parallel > 1;
      tensor += d.how.tensor_parallel > 1;
      auto trained = job;
      trained.train.emplace().schedule = "megatron";
      const auto e = evaluate(s.cluster, trained, d.how, d.where, fidelity::closed);
      REQUIRE(e);
      CHECK(e->samples_per_s == Approx(d.how.samples_per_s).epsilon(1e-9));
      const auto pools = pools_of(s.cluster, idle_index{s.cluster});
      const auto pool =
          std::ranges::find_if(pools, [&](const auto& one) { return one.contains(d.where); });
      REQUIRE(pool != pools.end());
      const auto gpus = total_gpus(d.where);
      for (std::uint32_t t = 1; t <= gpus; t *= 2)
        for (std::uint32_t k = 1; k * t <= gpus; k *= 2)
          if (const auto p = even_plan(s.cluster, *pool, job, {gpus / (k * t), k, t}, d.where))
            CHECK(p->samples_per_s <= d.how.samples_per_s * (1 + 1e-9));
    }
    beside_alike += granted.size() == 2 && granted[0] != granted[1];
  }
  CHECK(starts > 20);
  CHECK(scattered > 3);
  CHECK(pipelines > 3);
  CHECK(tensor > 3);
  CHECK(beside_alike > 3);
}
