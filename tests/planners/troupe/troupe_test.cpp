#include <catch2/catch.hpp>

#include <algorithm>
#include <map>

#include "harness/facts.hpp"
#include "planners/sample.hpp"
#include "planners/scene.hpp"
#include "planners/troupe/assignment.hpp"
#include "planners/troupe/pool_capacity.hpp"

using namespace troupe;
using namespace troupe::planners;
using scene_of_policies::carry_out;
using scene_of_policies::played_policy;
using scene_of_policies::same;
using scene_of_policies::scene;
using scene_of_policies::settling_s;

namespace {

job_spec long_job(std::uint64_t iterations, std::uint32_t batch = 32) {
  auto spec = sample::job(sample::gpt2_350m, batch);
  spec.iterations = iterations;
  return spec;
}

std::map<job_id, std::vector<decision>> by_job(const std::vector<decision>& all) {
  std::map<job_id, std::vector<decision>> out;
  for (const auto& d : all) out[d.job].push_back(d);
  return out;
}

// The scheduler's view of a job that has run for that time at the speed that its plan expects.
void has_run(scene& s, job_id id, double seconds) {
  auto& j = s.running.at(id);
  j.started_s = s.now_s - seconds;
  j.iteration_s = j.spec->global_batch / j.how.samples_per_s;
}

std::vector<decision> decide(const policy& p, const scene& s) {
  random_source r(1);
  return p.decide(s.view(), r);
}

}  // namespace

TEST_CASE("a pool's capacity admits exactly the counts that can be placed on its nodes") {
  std::size_t yes = 0, no = 0;
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    CAPTURE(seed);
    random_source r(seed);
    cluster c;
    sample::add_nodes(c, sample::a100_80, 1 + std::uint32_t(r.below(5)), 1u << r.below(4));
    idle_index idle{c};
    for (node_index n = 0; n < c.nodes.size(); ++n)
      idle.set_idle(n, std::uint32_t(r.below(c.nodes[n].gpus + 1)));
    const auto pools = pools_of(c, idle);
    REQUIRE(pools.size() == 1);
    const free_gpus free{c, idle};
    pool_capacity room{pools[0], free};
    const auto counts = counts_of(pools[0]);
    std::vector<std::uint32_t> taken;
    for (int i = 0; i < 8; ++i) {
      const auto next = counts[r.below(counts.size())];
      auto with = taken;
      with.push_back(next);
      // Sizes that divide each other: the largest first is best.
      std::ranges::sort(with, std::greater{});
      auto left = free;
      const bool possible = std::ranges::all_of(with, [&](std::uint32_t gpus) {
        const auto where = left.find(pools[0], gpus, {});
        left.take(where);
        return !where.empty();
      });
      REQUIRE(room.fits(next) == possible);
      (possible ? yes : no) += 1;
      if (!possible) continue;
      room.take(next);
      REQUIRE(room.is_valid());
      taken = std::move(with);
      if (r.chance(0.3)) {
        const auto largest = room.largest_without(taken.back());
        room.give_back(taken.back());
        REQUIRE(room.largest() == largest);
        REQUIRE(room.fits(largest));
        REQUIRE(!room.fits(largest + 1));
        taken.pop_back();
      }
    }
  }
  CHECK(yes > 1000);
  CHECK(no > 1000);
}

TEST_CASE("Troupe's policy gives a job without competitors the GPUs that make it fastest") {
  cluster c;
  sample::add_nodes(c, sample::a100_80, 2, 8);
  scene s(c);
  auto& j = s.add(1, long_job(100'000, 64));
  const auto p = make_policy("troupe");
  const auto d = decide(*p, s);
  REQUIRE(d.size() == 1);
  const auto options = configurations_of(s.cluster, pools_of(s.cluster, s.idle), j);
  const auto best = std::ranges::max_element(
      options, {}, [](const configuration& o) { return o.how.samples_per_s; });
  CHECK(d[0].how.gpus() == best->how.gpus());
  CHECK(d[0].how.samples_per_s == best->how.samples_per_s);
}

TEST_CASE("Troupe's policy admits a short job at once when a long one holds all GPUs") {
  cluster c;
  sample::add_nodes(c, sample::a100_80, 1, 8);
  scene s(c);
  s.add(1, long_job(1'000'000, 64));
  const auto p = make_policy("troupe");
  carry_out(s, decide(*p, s));
  REQUIRE(s.running.at(1).how.gpus() == 8);
  s.add(2, long_job(200, 64));

  // Not within a minute of its start: a start costs too much to be thrown away.
  s.now_s += 30;
  has_run(s, 1, 30);
  CHECK(decide(*p, s).empty());

  s.now_s += settling_s;
  has_run(s, 1, settling_s + 30);
  const auto d = by_job(decide(*p, s));
  REQUIRE(d.contains(2));
  CHECK(d.at(2).back().what == decision::kind::start);
  REQUIRE(d.contains(1));
  CHECK(d.at(1).front().what == decision::kind::stop);
}

TEST_CASE("Troupe's policy never stops a user's own program") {
  cluster c;
  sample::add_nodes(c, sample::a100_80, 1, 8);
  scene s(c);
  auto command = long_job(1'000'000, 64);
  command.program.command = {"train"};
  s.add(1, command);
  const auto p = make_policy("troupe");
  carry_out(s, decide(*p, s));
  s.now_s += 6000;
  has_run(s, 1, 6000);
  for (job_id id = 2; id < 12; ++id) {
    auto urgent = long_job(10, 64);
    urgent.priority = 9;
    s.add(id, urgent);
  }
  CHECK(!by_job(decide(*p, s)).contains(1));
}

TEST_CASE("a job of a higher priority comes first under Troupe's policy, however long it is") {
  cluster c;
  sample::add_nodes(c, sample::a100_80, 1, 1);
  scene s(c);
  s.add(1, long_job(10, 4));
  auto urgent = long_job(1'000'000, 4);
  urgent.priority = 1;
  s.add(2, urgent);
  const auto d = decide(*make_policy("troupe"), s);
  REQUIRE(d.size() == 1);
  CHECK(d[0].job == 2);
}

TEST_CASE("work that no split on any pool can hold runs as pipelines under Troupe's policy") {
  cluster c;
  sample::add_nodes(c, sample::rtx6000, 16, 2);
  auto big = sample::job(sample::gpt2_7b, 64);
  big.iterations = 1000;
  REQUIRE_FALSE(plans_for(c, big));  // too large for tensor parallelism in a node of two
  played_policy x{c, "troupe"};
  const auto& j = x.s.add(1, big);
  REQUIRE_FALSE(j.plans->empty());
  CHECK(std::ranges::is_sorted(*j.plans, std::greater{}, &plan::samples_per_s));
  x.s.waiting.at(1).training = runs_as_pipelines(big, j.plans.get());
  x.settle();
  REQUIRE(x.s.running.contains(1));
  CHECK(x.s.running.at(1).how == j.plans->front());
  CHECK(x.s.running.at(1).how.stages.size() > 1);
  // And is resized: short work comes, and takes what it needs.
  has_run(x.s, 1, settling_s);
  x.s.now_s += settling_s;
  const auto before = x.gpus(1);
  x.s.add(2, long_job(10));
  x.settle();
  CHECK(x.gpus(2) > 0);
  CHECK(x.gpus(1) <= before);
}

TEST_CASE(
    "work that only stages of several GPU types can do in time starts under Troupe's policy") {
  cluster c;
  sample::add_nodes(c, sample::a100_80, 1, 1);
  sample::add_nodes(c, sample::rtx6000, 4, 1);
  auto big = sample::job(sample::gpt2_7b, 4);
  big.limits.slo_s = 1e7;
  played_policy x{c, "troupe"};
  auto& j = x.s.add(1, big);
  REQUIRE_FALSE(j.plans->empty());
  REQUIRE(j.plans->front().gpu_types.size() > 1);
  j.training = runs_as_pipelines(big, j.plans.get());
  x.settle();
  REQUIRE(x.s.running.contains(1));
  x.s.now_s += settling_s;
  has_run(x.s, 1, settling_s);
  CHECK(x.decide().empty());
}

TEST_CASE("a user's own program gets what its objective asks for under Troupe's policy") {
  cluster c;
  sample::add_nodes(c, sample::a100_80, 2, 8);
  auto program = long_job(10'000, 16);
  program.program.command = {"train"};
  const auto gpus_for = [&](std::string objective) {
    program.objective = std::move(objective);
    played_policy x{c, "troupe"};
    x.s.add(1, program);
    x.settle();
    return x.gpus(1);
  };
  CHECK(gpus_for("efficient") == 1);
  CHECK(gpus_for("fastest") > 1);
  program.program.command.clear();
  CHECK(gpus_for("efficient") > 1);  // it gives them back when others come
}

TEST_CASE("Troupe's policy explains starts, shrinking, growth and waiting with figures") {
  cluster c;
  sample::add_nodes(c, sample::a100_80, 1, 8);
  played_policy x{c, "troupe"};
  const auto why = [&](job_id id) {
    const auto all = by_job(x.decide());
    return all.contains(id) ? all.at(id).back().why.text : std::string{};
  };
  x.s.add(1, long_job(1'000'000, 64));
  CHECK(troupe::test::has_facts(why(1), {"starts", "8 A100-80GB", "nobody is behind"}));
  x.settle();
  x.s.now_s += settling_s;
  has_run(x.s, 1, settling_s);
  // Four jobs of two nodes' work: the long one keeps a part, or waits.
  for (job_id id = 2; id < 5; ++id) x.s.add(id, long_job(2'000, 8));
  CHECK(troupe::test::has_facts(why(2), {"starts", "3 jobs are behind"}));
  x.settle();
  for (job_id id = 3; id < 5; ++id)
    if (x.s.running.contains(id)) x.end(id);
  x.s.now_s += settling_s;
  for (auto& [id, j] : x.s.running) has_run(x.s, id, settling_s);
  for (const auto& d : x.decide())
    if (d.what == decision::kind::start && x.s.running.contains(d.job))
      CHECK(troupe::test::has_facts(d.why.text, {"grows", "from", "instead of"}));
}

TEST_CASE("Troupe's policy says what a waiting job needs, and how many jobs are ahead of it") {
  cluster c;
  sample::add_nodes(c, sample::a100_80, 1, 2);
  played_policy x{c, "troupe"};
  auto program = long_job(100, 8);
  program.program.command = {"train"};
  x.s.add(1, program);
  x.s.add(2, long_job(100, 8));
  x.settle();
  x.s.add(3, long_job(100'000, 8));
  REQUIRE(x.s.running.size() == 2);
  CHECK(troupe::test::has_facts(
      scene_of_policies::why_of(*x.by, x.s, 3).text,
      {"needs 1 A100-80GB", "0 are idle", "1 running jobs", "1 others are not stopped"}));
}

TEST_CASE("after an out-of-memory Troupe's policy places a job by its new plans") {
  cluster c;
  sample::add_nodes(c, sample::a100_80, 1, 4);
  auto program = long_job(100, 4);
  program.program.command = {"train"};
  const auto p = make_policy("troupe");
  // As the estimator plans it after a failure: with more headroom.
  auto more = c;
  more.settings.memory_headroom = 3 * (1 + c.settings.memory_headroom) - 1;
  planning_budget budget;
  const auto plans = p->plans_of(more, program, budget);
  REQUIRE(plans);
  scene s(c);
  s.add(1, program).plans = std::make_shared<std::vector<plan>>(*plans);
  const auto d = decide(*p, s);
  REQUIRE(d.size() == 1);
  CHECK(std::ranges::any_of(*plans, [&](const plan& x) {
    return x.data_parallel == d[0].how.data_parallel &&
           x.tensor_parallel == d[0].how.tensor_parallel &&
           x.bytes_per_gpu == d[0].how.bytes_per_gpu;
  }));
}

TEST_CASE("the caches of Troupe's policy do not change its decisions") {
  const auto used = make_policy("troupe");
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    random_source r(seed);
    scene s(sample::random_cluster(r));
    for (job_id id = 1; id <= 12; ++id) {
      auto& j = s.add(id, long_job(1 + r.below(10'000), 1u << r.below(6)));
      if (r.chance(0.2)) j.history.bytes_floor = 8e9;
    }
    REQUIRE(same(decide(*used, s), decide(*make_policy("troupe"), s)));
    carry_out(s, decide(*used, s));
    for (auto& [id, j] : s.running) has_run(s, id, 100);
    REQUIRE(same(decide(*used, s), decide(*make_policy("troupe"), s)));
    // As the scheduler asks: the cluster is shared, arrivals come and old ones are dropped.
    const auto shared = std::make_shared<const cluster>(s.cluster);
    std::vector<planners::recent_arrival> arrivals;
    const auto decide_shared = [&](const policy& p) {
      snapshot now{s.now_s, *shared, s.idle, s.waiting, s.running};
      now.arrivals = arrivals;
      now.shared_cluster = shared;
      random_source any{1};
      return p.decide(now, any);
    };
    for (job_id id = 13; id <= 18; ++id) {
      s.now_s += 200;
      s.add(id, long_job(1 + r.below(10'000), 1u << r.below(6)));
      decide_shared(*used);  // another job of this number
      const auto& j = s.add(id, long_job(1 + r.below(10'000), 1u << r.below(6)));
      arrivals.push_back({s.now_s - 50, j.spec, j.plans});
      if (r.chance(0.3)) arrivals.erase(arrivals.begin());
      if (r.chance(0.3) && !s.running.empty()) s.running.begin()->second.history.bytes_floor = 8e9;
      const auto decided = decide_shared(*make_policy("troupe"));
      REQUIRE(same(decide_shared(*used), decided));
      carry_out(s, decided);
    }
  }
}

TEST_CASE("Troupe's policy drops its caches when the cluster changes") {
  const auto used = make_policy("troupe");
  cluster c;
  sample::add_nodes(c, sample::a100_80, 2, 4);
  sample::add_nodes(c, sample::rtx2080ti, 2, 4);
  scene s(c);
  for (job_id id = 1; id <= 6; ++id) s.add(id, long_job(1000, 16));
  const auto before = decide(*used, s);
  for (auto& g : s.cluster.gpus)
    g.memory_gb /= 2, g.fp16_tflops *= g.name == "A100-80GB" ? 0.01 : 1;
  s.idle = idle_index{s.cluster};
  const auto after = decide(*used, s);
  CHECK_FALSE(same(before, after));
  CHECK(same(after, decide(*make_policy("troupe"), s)));
}
