#include <catch2/catch.hpp>

#include <algorithm>

#include "harness/facts.hpp"
#include "planners/core/policy.hpp"
#include "planners/sample.hpp"
#include "planners/scene.hpp"

using namespace troupe;
using namespace troupe::planners;
using scene_of_policies::carry_out;
using scene_of_policies::same;
using scene_of_policies::scene;

namespace {

const model some_models[] = {sample::gpt2_7b, sample::gpt2_350m, sample::gpt2_small,
                             sample::gpt("1.5b", 1600, 48, 25), sample::gpt("2.7b", 2560, 32, 32)};

}  // namespace

TEST_CASE("the registry makes every policy that it lists, and no other") {
  for (const auto name : policy_names()) {
    REQUIRE(make_policy(name));
    CHECK(make_policy(name)->name() == name);
  }
  CHECK(policy_names().size() >= 4);
  CHECK(!make_policy("nobody"));
}

TEST_CASE(
    "every policy satisfies fits(), starts no job twice and is reproducible, on random snapshots") {
  for (const auto name : policy_names()) {
    const auto p = make_policy(name);
    DYNAMIC_SECTION(name) {
      std::size_t starts = 0, stops = 0, give_ups = 0;
      for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        random_source r(seed);
        scene s(sample::random_cluster(r));
        s.by = p.get();
        job_id next = 1;
        for (int step = 0; step < 8; ++step) {
          const auto arrivals = r.below(6);
          for (std::uint64_t k = 0; k < arrivals; ++k) {
            auto spec = sample::job(some_models[r.below(5)], 1u << r.below(6), 1u << r.below(5));
            spec.priority = r.chance(0.1) ? 1 : 0;
            if (r.chance(0.2)) spec.gpu_type = s.cluster.gpus[r.below(s.cluster.gpus.size())].name;
            auto& j = s.add(next++, spec);
            if (r.chance(0.1)) {
              j.out_of_memory = 1 + std::uint32_t(r.below(3));
              j.bytes_floor = 10e9;
            }
          }
          const auto twin = random_source(9);
          auto r1 = twin, r2 = twin;
          const auto decisions = p->decide(s.view(), r1);
          REQUIRE(same(decisions, p->decide(s.view(), r2)));
          REQUIRE(r1.state() == r2.state());
          for (const auto& d : decisions) {
            starts += d.what == decision::kind::start;
            stops += d.what == decision::kind::stop;
            give_ups += d.what == decision::kind::give_up;
          }
          carry_out(s, decisions);
          for (const auto& [id, j] : s.waiting) REQUIRE(!p->why_waiting(s.view(), id).text.empty());
          CHECK(p->why_waiting(s.view(), 9999).code == reason::kind::unknown);
          // Some jobs end, some nodes go away.
          for (auto it = s.running.begin(); it != s.running.end();) {
            if (!r.chance(0.3)) {
              ++it;
              continue;
            }
            for (const auto& share : it->second.where) {
              s.idle.set_idle(share.node, s.idle.idle(share.node) + share.gpus);
            }
            it = s.running.erase(it);
          }
          s.now_s += 60;
        }
      }
      CHECK(starts > 100);
      CHECK(give_ups > 0);
      if (name == "sia") CHECK(stops > 0);
    }
  }
}

TEST_CASE(
    "Frenzy skips a job that must wait, serves priority first, and stops when nothing is idle") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 1, 4);
  scene s(c);
  sample::add_nodes(c, sample::a100_40, 1,
                    4);  // plans are made for the cluster while it was larger
  const auto big = marp(c, sample::job(sample::gpt2_7b, 2));
  REQUIRE(big);
  s.add(1, sample::job(sample::gpt2_7b, 2)).plans = std::make_shared<std::vector<plan>>(*big);
  s.add(2, sample::job(sample::gpt2_small, 4));
  auto urgent = sample::job(sample::gpt2_small, 4);
  urgent.priority = 5;
  s.add(3, urgent);
  random_source r(1);
  const auto p = make_policy("frenzy");
  const auto d = p->decide(s.view(), r);
  REQUIRE(d.size() == 2);
  CHECK(d[0].job == 3);
  CHECK(d[1].job == 2);
  CHECK(troupe::test::has_facts(p->why_waiting(s.view(), 1).text, {"8 GPUs", "36.7 GB", "4"}));
  s.idle.set_idle(0, 0);
  CHECK(p->decide(s.view(), r).empty());
}

TEST_CASE("after an out-of-memory Frenzy takes the next larger plan, and gives up after the last") {
  cluster c;
  sample::add_nodes(c, sample::a100_80, 1, 8);
  scene s(c);
  auto& j = s.add(1, sample::job(sample::gpt2_350m, 8));
  random_source r(1);
  const auto p = make_policy("frenzy");
  const auto first = p->decide(s.view(), r);
  REQUIRE(first.size() == 1);
  double most = 0;
  for (const auto& x : *j.plans) most = std::max(most, x.bytes_per_gpu);
  j.bytes_floor = most - 1;
  const auto second = p->decide(s.view(), r);
  REQUIRE(second.size() == 1);
  CHECK(second[0].how.bytes_per_gpu == most);
  j.bytes_floor = most;
  const auto third = p->decide(s.view(), r);
  REQUIRE(third.size() == 1);
  CHECK(third[0].what == decision::kind::give_up);
}

TEST_CASE(
    "opportunistic takes the fastest GPUs, and doubles after an out-of-memory up to the cluster") {
  cluster c;
  sample::add_nodes(c, sample::rtx2080ti, 1, 8);
  sample::add_nodes(c, sample::a100_40, 1, 4);
  scene s(c);
  auto& j = s.add(1, sample::job(sample::gpt2_7b, 2, 2));
  random_source r(1);
  const auto p = make_policy("opportunistic");
  auto d = p->decide(s.view(), r);
  REQUIRE(d.size() == 1);
  CHECK(d[0].where == allocation{{1, 2}});
  CHECK(d[0].how.bytes_per_gpu == 0);  // no prediction says that it fits
  j.out_of_memory = 1;
  d = p->decide(s.view(), r);
  REQUIRE(d.size() == 1);
  CHECK(d[0].how.gpus() == 4);
  j.out_of_memory = 3;  // 16, but there are 12
  d = p->decide(s.view(), r);
  REQUIRE(d.size() == 1);
  CHECK(d[0].how.gpus() == 12);
  j.out_of_memory = 4;
  d = p->decide(s.view(), r);
  REQUIRE(d.size() == 1);
  CHECK(d[0].what == decision::kind::give_up);
  CHECK(troupe::test::has_facts(d[0].why.text, {"out of memory", "12 GPUs"}));
}

TEST_CASE("under FCFS the head of the line blocks, and impossible requests are refused") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 1, 4);
  scene s(c);
  s.idle.set_idle(0, 3);
  s.add(1, sample::job(sample::gpt2_small, 8, 16));
  s.add(2, sample::job(sample::gpt2_small, 8, 2));
  s.add(3, sample::job(sample::gpt2_small, 8, 2));
  s.add(4, sample::job(sample::gpt2_small, 8, 1));
  auto typed = sample::job(sample::gpt2_small, 8, 1);
  typed.gpu_type = "H100-80GB";
  s.add(5, typed);
  random_source r(1);
  const auto p = make_policy("fcfs");
  const auto d = p->decide(s.view(), r);
  REQUIRE(d.size() == 2);
  CHECK(d[0].what == decision::kind::give_up);
  CHECK(troupe::test::has_facts(d[0].why.text, {"16 GPUs", "4"}));
  CHECK(d[1].job == 2);
  carry_out(s, d);
  CHECK(troupe::test::has_facts(p->why_waiting(s.view(), 3).text, {"2 GPUs", "1"}));
  CHECK(troupe::test::has_facts(p->why_waiting(s.view(), 4).text, {"job 3"}));
}
