#include <catch2/catch.hpp>

#include "harness/facts.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/scene.hpp"
#include "planners/schedule/named_schedule.hpp"
#include "planners/search/job_space/find_pipelines.hpp"

using namespace troupe;
using namespace troupe::planners;
using scene_of_policies::carry_out;
using scene_of_policies::same;
using scene_of_policies::scene;

namespace {

/// Datacenters of single-GPU nodes.
cluster small_datacenters(const std::vector<std::uint32_t>& gpus) {
  cluster c;
  for (std::uint32_t dc = 0; dc < gpus.size(); ++dc) {
    c.datacenters.push_back({"dc" + std::to_string(dc), ""});
    const auto first = c.nodes.size();
    sample::add_nodes(c, sample::a100_80, gpus[dc], 1);
    for (auto n = first; n < c.nodes.size(); ++n) c.nodes[n].datacenter = dc;
    for (std::uint32_t other = 0; other < dc; ++other) c.wan.push_back({other, dc, 80, 5, 0.293});
  }
  return c;
}

job_spec tiny() {
  auto job = sample::job(sample::gpt("tiny", 64, 6, 4, 64, 256), 16);
  job.train = training{};
  job.train->device = "cpu";
  return job;
}

job_spec wishing(std::uint32_t stages, std::uint32_t pipelines) {
  auto job = tiny();
  job.pipeline.stages = stages;
  job.pipeline.data_parallel = pipelines;
  job.pipeline.microbatches = 4;
  return job;
}

std::vector<decision> decided(const scene& s, std::string_view name = "frenzy") {
  random_source r{1};
  return with_trainings(make_policy(name))->decide(s.view(), r);
}

/// Not by its plans, as most policies.
bool places_trainings(std::string_view name) {
  return make_policy(name)->traits().plans_by_request && name != "fcfs" && name != "opportunistic";
}

}  // namespace

TEST_CASE("a CUDA training gets no GPU that its kernels cannot run on, and is told the reason") {
  auto c = small_datacenters({4});
  auto old = c.gpus[0];
  old.name = "V100-32GB";
  old.compute_capability = 7.0;
  c.gpus.push_back(old);
  for (auto n : {0, 1, 2}) c.nodes[n].gpu = 1;
  auto job = wishing(0, 0);
  job.train->device = "cuda";
  const auto chosen = [&] { return place_pipelines(c, idle_index{c}, job, true); };
  const auto placed = chosen();
  REQUIRE(placed);
  CHECK(placed->where.size() == 1);
  CHECK(placed->where[0].node == 3);  // of a type of which nothing is known
  c.gpus[0].compute_capability = 8.0;
  CHECK(chosen()->where == placed->where);
  c.gpus[0].compute_capability = 0;
  const auto none = chosen();
  REQUIRE_FALSE(none);
  CHECK(none.error().text.find(
            "; device cuda requires compute capability 8.0 or newer, which excludes " +
            c.gpus[0].name + ", V100-32GB") != std::string::npos);
  job.train->device = "cpu";
  CHECK(chosen()->where.size() > 1);
}

TEST_CASE("under every policy a training gets its requested placement, datacenter by datacenter") {
  for (const auto name : policy_names()) {
    if (places_trainings(name)) continue;
    INFO(name);
    scene s(small_datacenters({4, 4, 4}));
    auto job = wishing(6, 2);
    job.pipeline.stages_per_datacenter = 2;
    s.add(1, job);
    const auto d = decided(s, name);
    REQUIRE(d.size() == 1);
    CHECK(d[0].what == decision::kind::start);
    CHECK(d[0].how.data_parallel == 2);
    CHECK(d[0].how.pipeline_parallel == 6);
    CHECK(d[0].how.tensor_parallel == 1);
    CHECK(d[0].how.samples_per_s > 0);
    REQUIRE(d[0].where.size() == 12);
    for (std::size_t i = 0; i < 12; ++i)
      CHECK(s.cluster.nodes[d[0].where[i].node].datacenter == i / 4);
    carry_out(s, d);
    CHECK(decided(s, name).empty());
  }
}

TEST_CASE("a study in slots is placed without a model") {
  scene s(small_datacenters({4, 4, 4}));
  job_spec study;
  study.name = "figure6";
  study.slots = slot_costs{};
  study.pipeline = {6, 2, 4, 2, 0, 0};
  s.add(1, study);
  const auto d = decided(s);
  REQUIRE(d.size() == 1);
  CHECK(d[0].how.bytes_per_gpu == 0);
  CHECK(d[0].how.samples_per_s == Approx(1.0 / 34));
  carry_out(s, d);
}

TEST_CASE("a training waits while others hold the GPUs that it requests, and says what it needs") {
  scene s(small_datacenters({4, 4}));
  s.add(1, wishing(2, 2));
  carry_out(s, decided(s));
  s.add(2, wishing(4, 2));
  CHECK(decided(s).empty());
  CHECK(troupe::test::has_facts(
      scene_of_policies::why_of(*with_trainings(make_policy("frenzy")), s, 2).text,
      {"8 GPUs", "2 pipelines", "4 stages", "4"}));
  // The first ends.
  for (const auto& share : s.running[1].where) s.idle.set_idle(share.node, 1);
  s.running.clear();
  CHECK(decided(s).size() == 1);
}

TEST_CASE(
    "a first start waits for nodes that have not reported; a restart does without lost nodes") {
  scene s(small_datacenters({4, 2}));
  auto& j = s.add(1, wishing(3, 2));
  j.submitted_s = s.now_s;
  for (node_index n = 1; n < 6; ++n) s.idle.set_idle(n, 0);
  CHECK(decided(s).empty());
  s.now_s += s.cluster.settings.lease_s;
  auto d = decided(s);
  REQUIRE(d.size() == 1);
  CHECK(d[0].how.gpus() == 1);
  // After a loss, at once.
  s.now_s = j.submitted_s;
  j.progress.attempts = 1;
  for (const auto n : {1u, 3u, 4u}) s.idle.set_idle(n, 1);
  d = decided(s);
  REQUIRE(d.size() == 1);
  CHECK(d[0].how.gpus() <= 4);
  CHECK(d[0].how.pipeline_parallel <= 3);
  CHECK(d[0].how.data_parallel <= 2);
  carry_out(s, d);
}

TEST_CASE("a request larger than the cluster is reduced; an impossible one is given up") {
  scene s(small_datacenters({2, 2}));
  s.add(1, wishing(6, 2));
  const auto d = decided(s);
  REQUIRE(d.size() == 1);
  CHECK(d[0].how.gpus() <= 4);
  scene t(small_datacenters({2}));
  job_spec study;
  study.slots = slot_costs{};
  study.pipeline.stages = 3;
  study.pipeline.microbatches = 2;
  t.add(1, study);
  const auto no = decided(t);
  REQUIRE(no.size() == 1);
  CHECK(no[0].what == decision::kind::give_up);
  CHECK(troupe::test::has_facts(no[0].why.text, {"3 stages", "2 GPUs"}));
}

TEST_CASE("jobs beside trainings are placed as if the remaining GPUs were the whole cluster") {
  for (const auto name : policy_names()) {
    if (places_trainings(name)) continue;
    random_source r{23};
    for (int i = 0; i < 20; ++i) {
      scene mixed(sample::random_cluster(r)), alone(mixed.cluster);
      if (mixed.idle.total_idle() < 4) continue;
      for (job_id id = 2; id < 8; ++id) {
        const auto job = sample::job(sample::gpt2_350m, 1u << r.below(5), 1u << r.below(3));
        mixed.add(id, job);
        alone.add(id, job);
      }
      mixed.add(1, wishing(2, 1));
      random_source r1{1}, r2{1};
      auto with = with_trainings(make_policy(name))->decide(mixed.view(), r1);
      REQUIRE(!with.empty());
      REQUIRE(with[0].job == 1);
      for (const auto& share : with[0].where)
        alone.idle.set_idle(share.node, alone.idle.idle(share.node) - share.gpus);
      const auto without = make_policy(name)->decide(alone.view(), r2);
      carry_out(mixed, with);
      with.erase(with.begin());
      CHECK(same(with, without));
    }
  }
}

TEST_CASE("on random snapshots the placements of trainings satisfy fits() under every policy") {
  for (const auto name : policy_names()) {
    const auto p = with_trainings(make_policy(name));
    std::size_t starts = 0;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      random_source r{seed};
      scene s(sample::random_cluster(r, 4));
      s.by = p.get();
      const auto datacenters = 1 + r.below(3);
      s.cluster.datacenters.assign(datacenters, {"d", ""});
      for (auto& n : s.cluster.nodes) n.datacenter = std::uint32_t(r.below(datacenters));
      job_id next = 1;
      for (int step = 0; step < 6; ++step) {
        for (auto k = r.below(3); k > 0; --k) {
          auto job = r.chance(0.5) ? tiny() : sample::job(sample::gpt2_350m, 16);
          if (!job.train) job.train = training{};
          if (r.chance(0.5)) job.pipeline.stages = 1 + std::uint32_t(r.below(6));
          if (r.chance(0.3)) job.pipeline.data_parallel = 1u << r.below(3);
          const char* objectives[] = {"efficient", "fastest", "cheapest"};
          job.objective = objectives[r.below(3)];
          s.add(next++, job);
        }
        s.add(next++, sample::job(sample::gpt2_350m, 4, 2));
        random_source r1{1};
        const auto d = p->decide(s.view(), r1);
        for (const auto& x : d) starts += x.what == decision::kind::start;
        carry_out(s, d);
        for (const auto& [id, j] : s.waiting) CHECK(!p->why_waiting(s.view(), id).text.empty());
        std::erase_if(s.running, [&](auto& at) {
          if (!r.chance(0.4)) return false;
          for (const auto& share : at.second.where)
            s.idle.set_idle(share.node, s.idle.idle(share.node) + share.gpus);
          return true;
        });
        s.now_s += 60;
      }
    }
    CHECK(starts > 50);
  }
}

TEST_CASE("a training that keeps all activations fits with as many in flight as it has stages") {
  const auto c = small_datacenters({2});
  auto job = sample::job(sample::gpt2_350m, 64);
  job.train.emplace().device = "sim";
  job.pipeline.stages = 2;
  job.pipeline.data_parallel = 1;
  job.pipeline.rows = 1;
  job.pipeline.recompute = false;
  const auto plans = plans_for(c, job);
  REQUIRE(plans);
  const auto& how = plans->front();
  job.train->schedule = "megatron";
  const auto as_megatron = plans_for(c, job);
  REQUIRE(as_megatron);
  CHECK(how.bytes_per_gpu < 2 * as_megatron->front().bytes_per_gpu);
  // And the schedule that is made keeps to it.
  job.train->schedule.clear();
  const auto timed = time_plan(c, job, how, allocation{{0, 1}, {1, 1}});
  REQUIRE(timed);
  CHECK(timed->shapes[0].max_in_flight == 2);
  const auto made = schedule_pipeline(timed->shapes[0], "best");
  REQUIRE(made);
  CHECK(made->max_in_flight <= 2);
}

TEST_CASE("no plan has more stages than megatron may have micro-batches in flight") {
  const auto c = small_datacenters({6});
  auto job = sample::job(sample::gpt2_350m, 24);
  job.objective = "fastest";
  job.train.emplace().device = "sim";
  job.train->schedule = "megatron";
  job.pipeline.rows = 1;
  job.pipeline.max_in_flight = 2;
  const auto plans = plans_for(c, job);
  REQUIRE(plans);
  for (const auto& p : *plans) {
    CHECK(p.pipeline_parallel <= 2);
    CHECK(p.samples_per_s > 0);
  }
  job.pipeline.stages = 4;
  planning_budget budget;
  const auto four = place_pipelines(c, idle_index{c}, job, true, budget);
  REQUIRE_FALSE(four);
  CHECK_THAT(four.error().text,
             Catch::Contains("with at most 2 micro-batches in flight (max_in_flight) under "
                             "schedule megatron"));
}

// Each pool's plans alone are much slower here.
TEST_CASE("the default policy's fastest plan is as fast as the search over all pools finds") {
  cluster c;
  auto fast = sample::a100_40, slow = sample::gpu("V100-16GB", 16, 125, 2.5);
  sample::add_nodes(c, fast, 1, 4);
  sample::add_nodes(c, slow, 3, 4);
  auto job = sample::job(sample::gpt2_350m, 64);
  job.objective = "fastest";
  planning_budget budget;
  const auto by_policy = make_policy("troupe")->plans_of(c, job, budget);
  REQUIRE(by_policy);
  const auto found = find_pipelines(c, idle_index{c}, job, widest_space(), 1, budget);
  REQUIRE(found);
  CHECK(by_policy->front().samples_per_s >= 0.99 * found->plans.front().how.samples_per_s);
  job.objective = "efficient";
  const auto by_pool = make_policy("troupe")->plans_of(c, job, budget);
  REQUIRE(by_pool);
  CHECK(by_policy->front().samples_per_s > 1.25 * by_pool->front().samples_per_s);
}

TEST_CASE("a job whose plan is over several pools gets GPUs of all, and the next one waits") {
  cluster c;
  auto fast = sample::a100_40, slow = sample::gpu("V100-16GB", 16, 125, 2.5);
  sample::add_nodes(c, fast, 1, 4);
  sample::add_nodes(c, slow, 3, 4);
  auto job = sample::job(sample::gpt2_350m, 64);
  job.objective = "fastest";
  const auto by = with_trainings(make_policy("troupe"));
  scene s{c};
  s.by = by.get();
  for (const job_id id : {1, 2}) s.add(id, job);
  const auto first = s.waiting.at(1);
  random_source r{1};
  const auto started = by->decide(s.view(), r);
  REQUIRE(started.size() == 1);
  CHECK(started[0].how.gpu_types.size() == 2);
  CHECK(total_gpus(started[0].where) == first.plans->front().gpus());
  CHECK(fits(c, idle_index{c}, started[0].how, started[0].where));
  CHECK(started[0].how.samples_per_s == Approx(first.plans->front().samples_per_s));
  carry_out(s, started);
  CHECK(by->decide(s.view(), r).empty());
}

namespace {

/// Pipelines of one stage with the whole of the tiny model, in a datacenter.
chosen_group chosen_in(const cluster& c, std::uint32_t dc, std::uint32_t pipelines,
                       std::uint32_t microbatches) {
  return {pipelines, microbatches, {{c.gpus[0].name, 12, {}, c.datacenters[dc].name}}};
}

}  // namespace

TEST_CASE("a job's own groups are placed where they name, under every policy") {
  const auto c = small_datacenters({2, 3, 2});
  auto job = tiny();
  job.pipeline.groups = {chosen_in(c, 2, 1, 5), chosen_in(c, 1, 3, 1)};
  for (const auto& name : policy_names()) {
    INFO(name);
    const auto by = with_trainings(make_policy(name));
    scene s{c};
    s.by = by.get();
    s.add(1, job);
    random_source r{1};
    const auto all = by->decide(s.view(), r);
    REQUIRE(all.size() == 1);
    const auto& how = all[0].how;
    CHECK(how.data_parallel == 4);
    CHECK(how.rows == 2);
    REQUIRE(how.groups);
    CHECK(how.groups->size() == 2);
    CHECK(how.groups->at(0).stages[0].datacenter == 2U);
    CHECK(fits(c, idle_index{c}, how, all[0].where));
    CHECK(total_gpus(all[0].where) == 4);
  }
}

TEST_CASE("groups that the cluster cannot have are refused for ever, and wait for used GPUs") {
  const auto c = small_datacenters({2, 3});
  auto job = tiny();
  const auto refused = [&](const idle_index& idle) {
    const auto p = place_pipelines(c, idle, job, true);
    REQUIRE_FALSE(p);
    return p.error();
  };
  job.pipeline.groups = {chosen_in(c, 0, 3, 1), chosen_in(c, 1, 1, 5)};
  CHECK(refused(idle_index{c}).code == reason::kind::infeasible);
  job.pipeline.groups = {chosen_in(c, 0, 1, 3), chosen_in(c, 1, 1, 5)};
  auto idle = idle_index{c};
  CHECK(place_pipelines(c, idle, job, true));
  for (node_index n = 0; n < 2; ++n) idle.set_idle(n, 0);
  CHECK(refused(idle).code == reason::kind::insufficient);
  (*job.pipeline.groups)[0].stages[0].gpu = "H99";
  CHECK(test::has_facts(refused(idle_index{c}).text, {"H99"}));
  (*job.pipeline.groups)[0] = chosen_in(c, 0, 1, 3);
  (*job.pipeline.groups)[0].stages[0].datacenter = "nowhere";
  CHECK(test::has_facts(refused(idle_index{c}).text, {"nowhere"}));
  CHECK(refused(idle_index{c}).code == reason::kind::infeasible);
}

TEST_CASE("a later attempt keeps the shares of the batch unless another plan is much faster") {
  const auto c = small_datacenters({2, 2});
  auto job = tiny();
  job.pipeline.groups = {chosen_in(c, 0, 2, 3), chosen_in(c, 1, 2, 1)};
  const auto first = place_pipelines(c, idle_index{c}, job, true);
  REQUIRE(first);
  job.pipeline.groups.reset();
  scene s{c};
  auto& j = s.add(1, job);
  const auto again = [&](const plan& last) {
    j.progress.attempts = 1;
    j.rows = last.rows, j.data_parallel = last.data_parallel;
    j.groups = last.groups.value_or(std::vector<pipeline_group>{});
    const auto all = decided(s);
    REQUIRE(all.size() == 1);
    return all[0].how;
  };
  const auto alike = again(plan{});
  CHECK_FALSE(alike.groups);
  const auto same = again(first->how);
  const bool much_faster = alike.samples_per_s >= 1.25 * first->how.samples_per_s;
  CHECK(same.rows == first->how.rows);
  CHECK(same.groups.has_value() == !much_faster);
}

TEST_CASE("unequal shares of a batch are kept where equal ones are less than 1.25 times as fast") {
  const auto c = small_datacenters({2});
  struct shares {
    std::uint32_t first = 0;
    bool kept = false;
  };
  for (const auto& x : {shares{9, true}, shares{15, false}}) {
    CAPTURE(x.first);
    auto job = tiny();
    job.model = sample::gpt("small", 512, 6, 8, 512, 1024);
    job.pipeline.groups = {chosen_in(c, 0, 1, x.first), chosen_in(c, 0, 1, 16 - x.first)};
    const auto first = place_pipelines(c, idle_index{c}, job, true);
    REQUIRE(first);
    REQUIRE(first->how.groups);
    job.pipeline.groups.reset();
    scene s{c};
    auto& j = s.add(1, job);
    j.progress.attempts = 1;
    j.rows = first->how.rows, j.data_parallel = 2;
    j.groups = *first->how.groups;
    const auto all = decided(s);
    REQUIRE(all.size() == 1);
    CHECK(all[0].how.rows == first->how.rows);
    CHECK(all[0].how.samples_per_s >= first->how.samples_per_s);
    REQUIRE(all[0].how.groups.has_value() == x.kept);
    if (x.kept) CHECK(all[0].how.groups->at(0).microbatches == x.first);
  }
}
