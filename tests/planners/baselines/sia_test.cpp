#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "harness/facts.hpp"
#include "planners/baselines/sia.hpp"
#include "planners/policy/policy.hpp"
#include "planners/sample.hpp"
#include "planners/scene.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

// Every way to give each single job one of its choices or nothing.
double cheapest(const sia_problem& p, const sia_options& o) {
  std::vector<const sia_group*> jobs;
  for (const auto& g : p.groups) jobs.insert(jobs.end(), g.jobs.size(), &g);
  std::vector<std::uint32_t> left;
  for (const auto& pool : p.pools) left.push_back(pool.capacity);
  double best = std::numeric_limits<double>::infinity();
  const auto walk = [&](const auto& self, std::size_t i, double cost) -> void {
    if (i == jobs.size()) {
      best = std::min(best, cost);
      return;
    }
    self(self, i + 1, cost + o.unassigned);
    for (const auto& x : jobs[i]->choices) {
      if (left[x.pool] < x.how.gpus()) continue;
      left[x.pool] -= x.how.gpus();
      self(self, i + 1, cost + x.cost);
      left[x.pool] += x.how.gpus();
    }
  };
  walk(walk, 0, 0);
  return best;
}

sia_problem random_problem(random_source& r) {
  sia_problem p;
  const auto pools = 1 + r.below(3);
  for (std::uint64_t i = 0; i < pools; ++i) {
    p.pools.push_back({0, 0, 4, std::uint32_t(1 + r.below(9)), {}});
  }
  const auto groups = 1 + r.below(4);
  for (std::uint64_t g = 0; g < groups; ++g) {
    sia_group group;
    group.jobs.resize(1 + r.below(2));
    const auto choices = 1 + r.below(5);
    for (std::uint64_t c = 0; c < choices; ++c) {
      sia_choice x;
      x.pool = std::uint32_t(r.below(pools));
      x.how.data_parallel = std::uint32_t(1 + r.below(5));
      x.cost = 0.1 + r.uniform();
      group.choices.push_back(x);
    }
    p.groups.push_back(group);
  }
  return p;
}

struct scene {
  troupe::cluster cluster;
  idle_index idle;
  job_views waiting, running;
  double now_s = 1000;
  explicit scene(troupe::cluster c) : cluster(std::move(c)), idle(cluster) {}
  snapshot view() const { return {now_s, cluster, idle, waiting, running}; }
  void run(const decision& d) {
    auto j = waiting.extract(d.job).mapped();
    j.where = d.where;
    j.how = d.how;
    j.progress.attempts = 1;
    j.started_s = now_s;
    for (const auto& n : d.where) idle.set_idle(n.node, idle.idle(n.node) - n.gpus);
    running[d.job] = j;
  }
};

job_view waiting_job(job_id id, const job_spec& spec, double submitted_s = 0) {
  job_view j;
  j.id = id;
  j.spec = std::make_shared<job_spec>(spec);
  j.submitted_s = submitted_s;
  return j;
}

}  // namespace

TEST_CASE("Sia's program finds the best of all assignments, on 300 small cases") {
  sia_options exact;
  exact.gap = 0;
  exact.max_nodes = 100'000;
  random_source r(21);
  for (int i = 0; i < 300; ++i) {
    const auto p = random_problem(r);
    const auto answer = solve_sia(p, exact);
    REQUIRE(answer.cost == Approx(cheapest(p, exact)).margin(1e-7));
    double cost = 0;
    std::vector<double> used(p.pools.size());
    for (std::size_t g = 0; g < p.groups.size(); ++g) {
      double jobs = 0;
      for (std::size_t c = 0; c < p.groups[g].choices.size(); ++c) {
        const auto& x = p.groups[g].choices[c];
        jobs += answer.taken[g][c];
        cost += answer.taken[g][c] * x.cost;
        used[x.pool] += answer.taken[g][c] * x.how.gpus();
      }
      REQUIRE(jobs <= double(p.groups[g].jobs.size()));
      cost += exact.unassigned * (double(p.groups[g].jobs.size()) - jobs);
    }
    for (std::size_t k = 0; k < used.size(); ++k) REQUIRE(used[k] <= p.pools[k].capacity);
    REQUIRE(cost == Approx(answer.cost));
  }
}

TEST_CASE("Sia starts a job at its smallest count and at most doubles it per round") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 2, 8);
  scene s(c);
  s.waiting[1] = waiting_job(1, sample::job(sample::gpt2_small, 16));
  const auto p = make_policy("sia");
  CHECK(p->traits().round_s == 60);
  random_source r(1);
  auto d = p->decide(s.view(), r);
  REQUIRE(d.size() == 1);
  CHECK(d[0].how.gpus() == 1);
  s.run(d[0]);
  std::vector<std::uint32_t> counts;
  for (int round = 0; round < 5; ++round) {
    s.now_s += 3600;
    d = p->decide(s.view(), r);
    if (d.empty()) break;
    REQUIRE(d.size() == 2);
    CHECK(d[0].what == decision::kind::stop);
    counts.push_back(d[1].how.gpus());
    auto j = s.running.extract(1).mapped();
    for (const auto& n : j.where) s.idle.set_idle(n.node, s.idle.idle(n.node) + n.gpus);
    j.where.clear();
    s.waiting[1] = j;
    s.run(d[1]);
  }
  REQUIRE(counts.size() >= 3);
  CHECK(counts[0] == 2);
  CHECK(counts[1] == 4);
  CHECK(counts[2] == 8);
}

TEST_CASE("a running job's row is normalised by its minimum, and discounted for a restart") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 1, 8);
  c.settings.restart_s = 100;
  scene s(c);
  auto j = waiting_job(1, sample::job(sample::gpt2_small, 16), 0);
  j.where = {{0, 1}};
  j.progress.attempts = 2;  // one restart
  s.idle.set_idle(0, 7);
  s.running[1] = j;
  const auto p = make_sia_problem(s.view());
  REQUIRE(p.groups.size() == 1);
  const auto& g = p.groups[0];
  REQUIRE(g.present != sia_group::none);
  CHECK(g.choices[g.present].cost == Approx(1));  // the minimum of its row: 1 GPU
  const auto two = std::ranges::find_if(g.choices, [](const auto& x) { return x.how.gpus() == 2; });
  REQUIRE(two != g.choices.end());
  const double goodput = two->how.samples_per_s / g.choices[g.present].how.samples_per_s;
  const double factor = std::round((1000.0 - 100) / (1000 + 100) * 50) / 50;
  CHECK(two->cost == Approx(1 / std::sqrt(goodput * factor) + 0.01));
  for (const auto& x : g.choices) CHECK(x.how.gpus() <= 2);
}

TEST_CASE("Sia changes nothing when every job has its best configuration and none waits") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 1, 1);
  scene s(c);
  s.waiting[1] = waiting_job(1, sample::job(sample::gpt2_small, 1));
  random_source r(1);
  const auto p = make_policy("sia");
  s.run(p->decide(s.view(), r).at(0));
  CHECK(nothing_to_gain(make_sia_problem(s.view())));
  CHECK(p->decide(s.view(), r).empty());
}

TEST_CASE("Sia recognizes a job's configuration when the job runs with another split") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 1, 2);
  scene s(c);
  auto j = waiting_job(1, sample::job(sample::gpt2_small, 16));
  j.where = {{0, 2}};
  j.progress.attempts = 1;
  s.idle.set_idle(0, 0);
  for (const bool pipeline : {false, true}) {
    j.how = {};
    (pipeline ? j.how.pipeline_parallel : j.how.tensor_parallel) = 2;
    s.running[1] = j;
    const auto p = make_sia_problem(s.view());
    REQUIRE(p.groups.size() == 1);
    REQUIRE(p.groups[0].present != sia_group::none);
    CHECK(p.groups[0].choices[p.groups[0].present].how.gpus() == 2);
    random_source r(1);
    CHECK(make_policy("sia")->decide(s.view(), r).empty());
  }
}

TEST_CASE("Sia repacks a pool whose free GPUs are too scattered") {
  cluster c;
  sample::add_nodes(c, sample::a100_80, 2, 4);
  scene s(c);
  // One GPU taken on each node, by jobs that cannot grow; then one that needs a whole node.
  for (job_id id = 1; id <= 2; ++id) {
    auto j = waiting_job(id, sample::job(sample::gpt2_small, 1), 0);
    s.waiting[id] = j;
    decision d;
    d.job = id;
    d.where = {{node_index(id - 1), 1}};
    s.run(d);
  }
  s.waiting[3] = waiting_job(3, sample::job(sample::gpt2_7b, 2), 900);
  const auto p = make_sia_problem(s.view());
  random_source r(1);
  const auto d = make_policy("sia")->decide(s.view(), r);
  const auto started = std::ranges::find_if(
      d, [](const decision& x) { return x.what == decision::kind::start && x.job == 3; });
  REQUIRE(started != d.end());
  CHECK(started->where.size() == 1);
}

namespace {

gpu_type forty_gb(const char* name, double tflops) {
  return sample::gpu(name, 40, tflops);
}

}  // namespace

TEST_CASE("under Sia a job that no pool can hold gets GPUs of several if few others want them") {
  cluster c;
  sample::add_nodes(c, forty_gb("slow", 150), 1, 4);
  sample::add_nodes(c, forty_gb("fast", 300), 1, 4);
  scene_of_policies::played_policy w{c, "sia"};
  w.s.add(1, sample::job(sample::gpt2_small, 16));
  w.settle();
  CHECK(w.gpus(1) == 1);
  for (const job_id id : {2, 3}) w.s.add(id, sample::job(sample::gpt2_7b, 2));  // needs eight
  w.s.now_s += 3600;
  w.settle();
  CHECK(w.gpus(1) == 0);
  CHECK(w.gpus(2) == 8);
  CHECK(w.gpus(3) == 0);
  CHECK(troupe::test::has_facts(scene_of_policies::why_of(*w.by, w.s, 3).text,
                                {"no pool", "8 GPUs"}));
  w.s.now_s += 3600;
  CHECK(w.decide().empty());
  // Eight jobs on a GPU each are worth more.
  for (job_id id = 11; id <= 20; ++id) w.s.add(id, sample::job(sample::gpt2_small, 1));
  w.settle();
  CHECK(w.gpus(2) == 0);
  CHECK(w.s.running.size() == 8);
  w.s.now_s += 3600;
  w.settle();
  CHECK(w.gpus(2) + w.gpus(3) == 0);
  while (!w.s.running.empty()) w.end(w.s.running.begin()->first);
  for (job_id id = 1; id <= 20; ++id)
    if (id != 2 && id != 3) w.s.waiting.erase(id);
  w.settle();
  CHECK(w.gpus(2) == 8);
  w.end(2);
  w.settle();
  CHECK(w.gpus(3) == 8);
}

TEST_CASE("under Sia GPUs of several pools are rather idle ones than those of other jobs") {
  cluster c;
  sample::add_nodes(c, forty_gb("slow", 150), 1, 4);
  sample::add_nodes(c, forty_gb("slower", 140), 1, 4);
  sample::add_nodes(c, forty_gb("fast", 300), 1, 4);
  scene_of_policies::played_policy w{c, "sia"};
  w.s.add(1, sample::job(sample::gpt2_small, 1));
  w.settle();
  CHECK(w.type(1) == "fast");
  w.s.add(2, sample::job(sample::gpt2_7b, 2));
  w.settle();
  CHECK(w.type(1) == "fast");
  CHECK(w.gpus(2) == 8);
}

TEST_CASE("Sia gives up a job that not even the GPUs of several pools can hold") {
  cluster c;
  sample::add_nodes(c, forty_gb("slow", 150), 1, 2);
  sample::add_nodes(c, forty_gb("fast", 300), 1, 4);
  auto job = sample::job(sample::gpt2_7b, 2);
  job.microbatches = 1;  // otherwise four GPUs hold it, one sample after the other
  scene_of_policies::played_policy w{c, "sia"};
  w.s.add(1, job);
  const auto d = w.decide();
  REQUIRE(d.size() == 1);
  CHECK(d[0].what == decision::kind::give_up);
  // Nor those that provide no more than what did not suffice.
  cluster enough = c;
  sample::add_nodes(enough, forty_gb("slow", 150), 1, 2);
  scene_of_policies::played_policy failed{enough, "sia"};
  auto& j = failed.s.add(1, job);
  CHECK(failed.decide().at(0).what == decision::kind::start);
  j.history.bytes_floor = 39.9e9;
  CHECK(failed.decide().at(0).what == decision::kind::give_up);
}
