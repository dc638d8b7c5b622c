#include <catch2/catch.hpp>

#include <algorithm>
#include <set>
#include <string>

#include "harness/facts.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/plans/exact_gpus.hpp"
#include "planners/plans/places.hpp"
#include "planners/plans/shortage.hpp"
#include "planners/policy/replayed_jobs.hpp"
#include "planners/policy/with_exact_gpus.hpp"
#include "planners/policy/with_reservation.hpp"
#include "planners/scene.hpp"
#include "planners/variety.hpp"

// Where programs and trainings may be placed: datacenters with and without links, nodes that cannot
// be used, and numbers of GPUs that differ between nodes.

namespace places_tests {

using namespace troupe;
using namespace troupe::planners;
using scene_of_policies::carry_out;
using scene_of_policies::scene;
using troupe::test::has_facts;

using links = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

/// Datacenters d0, d1, ... each with that many nodes of four GPUs.
cluster sites(const std::vector<std::uint32_t>& nodes, const links& linked,
              const gpu_type& gpu = sample::a100_40) {
  cluster c;
  for (std::uint32_t d = 0; d < nodes.size(); ++d) {
    c.datacenters.push_back({"d" + std::to_string(d), ""});
    const auto first = c.nodes.size();
    sample::add_nodes(c, gpu, nodes[d], 4);
    for (auto n = first; n < c.nodes.size(); ++n) c.nodes[n].datacenter = d;
  }
  for (const auto& [a, b] : linked) c.wan.push_back({a, b, 40, 5, 0});
  return c;
}

job_spec program(std::uint32_t gpus) {
  auto job = sample::job(sample::gpt2_small, 4, gpus);
  job.name = "program";
  job.program.command = {"train"};
  job.iterations = 1;
  job.request.exact = job.assumed.model = true;
  return job;
}

/// As the controller stacks them.
std::shared_ptr<const policy> complete(std::string_view name) {
  return with_reservation(
      with_exact_gpus(with_trainings(std::shared_ptr<const policy>{make_policy(name)})));
}

/// The only job of a cluster, after rounds of half an hour: where it runs; empty: it was refused or
/// given up.
allocation place_of(const policy& by, const cluster& c, const job_spec& spec) {
  scene s{c};
  s.by = &by;
  s.add(1, spec).submitted_s = s.now_s;
  for (random_source r{1}; !s.waiting.empty() && s.now_s < 5000 + 1800;
       s.now_s += std::max(60.0, by.traits().round_s)) {
    const auto decisions = by.decide(s.view(), r);
    carry_out(s, decisions);
  }
  CHECK(s.waiting.empty());
  return s.running.contains(1) ? s.running.at(1).where : allocation{};
}

std::set<std::uint32_t> datacenters_of(const cluster& c, const allocation& where) {
  std::set<std::uint32_t> all;
  for (const auto& share : where) all.insert(c.nodes[share.node].datacenter);
  return all;
}

/// By the file's links alone.
bool all_linked(const cluster& c, const allocation& where) {
  const auto used = datacenters_of(c, where);
  for (const auto a : used)
    for (const auto b : used)
      if (a < b && std::ranges::none_of(c.wan, [&](const wan_link& w) {
            return (w.a == a && w.b == b) || (w.a == b && w.b == a);
          }))
        return false;
  return true;
}

/// Each two datacenters are linked or not, at random.
void divide(cluster& c, random_source& r) {
  const auto n = 2 + std::uint32_t(r.below(3));
  c.datacenters.clear();
  c.wan.clear();
  for (std::uint32_t d = 0; d < n; ++d) c.datacenters.push_back({"d" + std::to_string(d), ""});
  for (auto& node : c.nodes) node.datacenter = std::uint32_t(r.below(n));
  for (std::uint32_t b = 1; b < n; ++b)
    for (std::uint32_t a = 0; a < b; ++a)
      if (r.chance(0.5)) c.wan.push_back({a, b, 20, 5, 0});
}

TEST_CASE(
    "a program with unequal parts takes GPUs of the nodes that have the most, if equal ones are "
    "none") {
  const auto c = sites({3}, {});
  const idle_index idle{c};
  const auto pools = pools_of(c, idle);
  REQUIRE(pools.size() == 1);
  free_gpus free{c, idle};
  free.take({{0, 3}, {1, 1}});  // 1, 3 and 4 are free
  auto job = program(5);
  CHECK(find_for_program(free, pools[0], 5, job).empty());
  job.request.unequal = true;
  CHECK(find_for_program(free, pools[0], 5, job) == allocation{{2, 4}, {1, 1}});
  CHECK(find_for_program(free, pools[0], 8, job) == allocation{{2, 4}, {1, 3}, {0, 1}});
  CHECK(find_for_program(free, pools[0], 9, job).empty());
  // Equal parts come first.
  CHECK(find_for_program(free, pools[0], 6, job) == allocation{{1, 3}, {2, 3}});
}

}  // namespace places_tests

using namespace places_tests;

TEST_CASE("a program that only datacenters without a link have the GPUs for is refused") {
  const auto c = sites({1, 1}, {});
  for (const auto name : policy_names()) {
    CAPTURE(name);
    const auto by = complete(name);
    planning_budget budget;
    const auto plans = by->plans_of(c, program(8), budget);
    REQUIRE(!plans);
    CHECK(plans.error().code == reason::kind::infeasible);
    CHECK(has_facts(plans.error().text, {"8 GPUs", "d0 and d1", "no link"}));
    auto across = program(8);
    across.request.across_datacenters = true;
    CHECK(!by->plans_of(c, across, budget));
    CHECK(datacenters_of(c, place_of(*by, c, program(4))).size() == 1);
  }
}

TEST_CASE(
    "a program is spread over linked datacenters if none is large enough, or its file says so") {
  const auto c = sites({1, 1}, {{0, 1}});
  for (const auto name : policy_names()) {
    CAPTURE(name);
    const auto by = complete(name);
    CHECK(datacenters_of(c, place_of(*by, c, program(8))).size() == 2);
    // One datacenter is large enough, though not idle now.
    scene s{c};
    s.by = by.get();
    s.add(1, program(4));
    s.idle.set_idle(0, 2);
    s.idle.set_idle(1, 2);
    random_source r{1};
    CHECK(by->decide(s.view(), r).empty());
    CHECK(has_facts(scene_of_policies::why_of(*by, s, 1).text, {"needs 4", "in one datacenter"}));
    auto free = program(4);
    free.request.across_datacenters = true;
    scene t{c};
    t.by = by.get();
    t.add(1, free);
    t.idle = s.idle;
    carry_out(t, by->decide(t.view(), r));
    REQUIRE(t.running.contains(1));
    CHECK(datacenters_of(c, t.running.at(1).where).size() == 2);
  }
  CHECK(spread_notice(c, program(4), *exact_plans(c, program(4))).empty());
  CHECK(has_facts(spread_notice(c, program(8), *exact_plans(c, program(8))),
                  {"no datacenter is large enough", "8 GPUs"}));
}

TEST_CASE("of three datacenters in a row the two that have no link are not used together") {
  const auto c = sites({1, 1, 1}, {{0, 1}, {1, 2}});
  CHECK(linked_groups(c) ==
        std::vector<datacenter_group>{{true, true, false}, {false, true, true}});
  CHECK(within_places(c, program(8), {{0, 4}, {1, 4}}));
  CHECK(has_facts(within_places(c, program(8), {{0, 4}, {2, 4}}).error().text,
                  {"d0 and d2", "no link"}));
  CHECK(!within_places(c, program(12), {{0, 4}, {1, 4}, {2, 4}}));
  for (const auto name : policy_names()) {
    CAPTURE(name);
    const auto by = complete(name);
    planning_budget budget;
    CHECK(!by->plans_of(c, program(12), budget));
    scene s{c};
    s.by = by.get();
    s.add(1, program(8));
    s.idle.set_idle(1, 0);
    random_source r{1};
    CHECK(by->decide(s.view(), r).empty());
    s.idle.set_idle(1, 4);
    carry_out(s, by->decide(s.view(), r));
    REQUIRE(s.running.contains(1));
    CHECK(all_linked(c, s.running.at(1).where));
  }
}

TEST_CASE("no policy starts anything over datacenters without a link, on random snapshots") {
  for (const auto name : policy_names()) {
    CAPTURE(name);
    const auto by = complete(name);
    std::size_t starts = 0, spread = 0;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      CAPTURE(seed);
      random_source r{seed};
      auto c = variety::some_cluster(r, 4);
      divide(c, r);
      scene s{c};
      s.by = by.get();
      for (job_id id = 1; id <= 8; ++id) {
        auto job = r.chance(0.2) ? variety::some_training(r) : variety::some_program(r, c);
        if (r.chance(0.5) && !facts_of(job).pipelines) {
          job.program.command = {"train"};
          job.request.exact = r.chance(0.7);
          if (job.request.exact) job.request.gpus = 1 + std::uint32_t(r.below(12));
          if (r.chance(0.3)) job.request.across_datacenters = true;
          if (r.chance(0.3)) job.request.unequal = true;
          if (job.limits.max_gpus)
            job.limits.max_gpus = std::max(*job.limits.max_gpus, job.request.gpus);
        }
        if (job.slots && job.pipeline.stages == 0) job.pipeline.stages = 2;
        auto& j = s.add(id, job);
        j.training = runs_as_pipelines(*j.spec, j.plans.get());
      }
      for (int round = 0; round < 3; ++round) {
        random_source own{seed};
        carry_out(s, by->decide(s.view(), own));
        for (const auto& [id, j] : s.running) {
          ++starts;
          spread += datacenters_of(c, j.where).size() > 1;
          REQUIRE(all_linked(c, j.where));
        }
        s.now_s += 1000;
        if (s.running.empty()) continue;
        const auto ended = s.running.begin()->first;
        for (const auto& share : s.running.at(ended).where)
          s.idle.set_idle(share.node, s.idle.idle(share.node) + share.gpus);
        s.running.erase(ended);
      }
    }
    CHECK(starts > 100);
    CHECK(spread > 0);
  }
}

TEST_CASE("a training that needs all datacenters is refused if two of them have no link") {
  auto job = sample::job(sample::gpt2_small, 4);
  job.train.emplace().device = "sim";
  job.pipeline.stages = 3;
  job.pipeline.data_parallel = 4;
  for (const auto name : policy_names()) {
    CAPTURE(name);
    const auto by = complete(name);
    const auto apart = sites({1, 1, 1}, {{0, 1}, {1, 2}});
    const auto linked = sites({1, 1, 1}, {{0, 1}, {1, 2}, {0, 2}});
    const bool in_one_pool = name.starts_with("crius");  // wherever it places pipelines
    CHECK(datacenters_of(linked, place_of(*by, linked, job)).size() == (in_one_pool ? 0 : 3));
    CHECK(datacenters_of(apart, place_of(*by, apart, job)).size() < 3);
    auto two = job;
    two.pipeline.stages = 2;
    const auto none = sites({1, 1}, {});
    CHECK(datacenters_of(none, place_of(*by, none, two)).size() < 2);
  }
}

TEST_CASE("a wide program that waits for a drained or absent node keeps no GPUs idle") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 2, 4);
  for (const auto name : policy_names())
    for (const char* state : {"drained", "absent"}) {
      CAPTURE(name, state);
      const auto by = complete(name);
      scene s{c};
      s.by = by.get();
      s.add(1, program(8));
      for (job_id id = 2; id <= 4; ++id) s.add(id, program(1));
      s.idle.set_idle(1, 0);
      const unusable_node away[] = {{1, state}};
      auto view = s.view();
      view.unusable = away;
      random_source r{1};
      const auto decisions = by->decide(view, r);
      CHECK(!reservation_of(view));
      CHECK(has_facts(by->why_waiting(view, 1).text, {"n1, which is", state, "waits for"}));
      carry_out(s, decisions);
      CHECK(s.running.size() == 3);
      // With the node back it runs.
      for (auto at = s.running.begin(); at != s.running.end(); at = s.running.erase(at))
        for (const auto& share : at->second.where)
          s.idle.set_idle(share.node, s.idle.idle(share.node) + share.gpus);
      s.idle.set_idle(1, 4);
      s.now_s += 1000;
      carry_out(s, by->decide(s.view(), r));
      CHECK(s.running.contains(1));
    }
}

TEST_CASE("a job behind a reservation is told for whom its GPUs are kept, and since when") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 2, 4);
  const auto by = complete("troupe");
  scene s{c};
  s.by = by.get();
  random_source r{1};
  s.add(1, program(4));
  carry_out(s, by->decide(s.view(), r));
  s.add(2, program(8));
  carry_out(s, by->decide(s.view(), r));
  s.now_s += 35;
  auto small = program(1);
  s.add(3, small);
  small.priority = 1;
  s.add(4, small);
  carry_out(s, by->decide(s.view(), r));
  REQUIRE(s.running.contains(4));  // it comes before the wide one
  REQUIRE(s.waiting.contains(3));
  std::optional<kept_gpus> kept;
  follow(kept, s.view(), {});
  REQUIRE(kept);
  CHECK(kept->job == 2);
  s.now_s += 5;
  CHECK(has_facts(scene_of_policies::why_of(*by, s, 3).text,
                  {"kept for job 2", "'program'", "for 40 s", "3 idle GPUs of"}));
  CHECK(has_facts(scene_of_policies::why_of(*by, s, 2).text, {"kept for it, for 40 s"}));
}

TEST_CASE("a program that permits unequal numbers gets them where no equal ones are") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 4, 8);
  for (const auto name : policy_names())
    for (const std::uint32_t gpus : {11U, 13U, 17U, 31U}) {
      CAPTURE(name, gpus);
      const auto by = complete(name);
      planning_budget budget;
      const auto never = by->plans_of(c, program(gpus), budget);
      REQUIRE(!never);
      CHECK(has_facts(never.error().text, {"the same number on each node", "`unequal: true`"}));
      auto job = program(gpus);
      job.request.unequal = true;
      const auto where = place_of(*by, c, job);
      CHECK(total_gpus(where) == gpus);
    }
  auto even = program(12);
  even.request.unequal = true;
  CHECK(place_of(*complete("fcfs"), c, even) == place_of(*complete("fcfs"), c, program(12)));
}

TEST_CASE("a replayed gang of any size runs as it is under every policy") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 4, 8);
  for (const auto name : policy_names())
    for (const std::uint32_t gpus : {1U, 8U, 11U, 13U, 17U, 31U, 32U}) {
      CAPTURE(name, gpus);
      auto job = sample::job(sample::gpt2_small, 1, gpus);
      job.name = "gang";
      job.iterations = 100;
      auto times = std::make_shared<replayed_times>();
      replayed_job gang;
      gang.times.push_back({"", 1, 1});
      times->emplace(job.name, gang);
      const auto by = with_replayed_times(std::shared_ptr<const policy>{make_policy(name)}, times);
      CHECK(total_gpus(place_of(*by, c, job)) == gpus);
    }
}

TEST_CASE("a job of a higher priority gets the GPUs of elastic programs that have just begun") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 2, 4);
  for (const std::int32_t priority : {100, 0}) {
    CAPTURE(priority);
    const auto by = complete("troupe");
    scene s{c};
    s.by = by.get();
    random_source r{1};
    for (job_id id = 1; id <= 2; ++id) {
      auto low = sample::job(sample::gpt2_small, 8);
      low.program.command = {"train"};
      low.iterations = 300'000;
      low.program.elastic.emplace();
      s.add(id, low).submitted_s = s.now_s;
    }
    carry_out(s, by->decide(s.view(), r));
    REQUIRE(s.idle.total_idle() < 4);
    for (auto& [id, j] : s.running) j.iteration_s = j.spec->global_batch / j.how.samples_per_s;
    s.now_s += 5;
    auto urgent = program(4);
    urgent.priority = priority;
    s.add(3, urgent).submitted_s = s.now_s;
    const auto decisions = by->decide(s.view(), r);
    carry_out(s, decisions);
    CHECK(s.running.contains(3) == (priority > 0));
    if (priority == 0)
      CHECK(has_facts(scene_of_policies::why_of(*by, s, 3).text,
                      {"needs 4", "began lately", "left alone"}));
  }
}

TEST_CASE("pipelines have room only where each datacenter has what their stages need") {
  auto c = sites({2, 1, 1}, {{0, 1}, {0, 2}, {1, 2}});
  auto job = sample::job(sample::gpt2_small, 4);
  job.train.emplace().device = "sim";
  job.pipeline.stages = 3;
  job.pipeline.data_parallel = 2;
  job.pipeline.stages_per_datacenter = 1;
  const auto how = sample::staged(job, 3, 2);
  idle_index idle{c};
  auto any = how;
  any.gpu_types = {0};
  CHECK(has_room(c, idle, job, any));
  idle.set_idle(3, 0);  // the only node of d2
  CHECK(!has_room(c, idle, job, any));
  scene s{c};
  s.idle = idle;
  s.add(1, job);
  const auto why = scene_of_policies::why_of(*complete("troupe"), s, 1).text;
  CHECK(has_facts(why, {"needs 2 idle GPUs in each of 3 datacenters", "d2 has 0"}));
  job.pipeline.stages_per_datacenter = 0;
  CHECK(has_room(c, idle, job, any));
}
