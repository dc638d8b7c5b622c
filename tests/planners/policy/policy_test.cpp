#include <catch2/catch.hpp>

#include <algorithm>

#include "harness/facts.hpp"
#include "planners/policy/policy.hpp"
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
        auto c = sample::random_cluster(r);
        if (seed % 3 == 0) {  // two datacenters without a link
          c.datacenters.push_back({"other", ""});
          for (node_index n = 1; n < c.nodes.size(); n += 2) c.nodes[n].datacenter = 1;
        }
        scene s(std::move(c));
        s.by = p.get();
        job_id next = 1;
        for (int step = 0; step < 8; ++step) {
          const auto arrivals = r.below(6);
          for (std::uint64_t k = 0; k < arrivals; ++k) {
            auto spec = sample::job(some_models[r.below(5)], 1u << r.below(6), 1u << r.below(5));
            spec.priority = r.chance(0.1) ? 1 : 0;
            if (r.chance(0.2))
              spec.request.type = s.cluster.gpus[r.below(s.cluster.gpus.size())].name;
            auto& j = s.add(next++, spec);
            if (r.chance(0.1)) {
              j.history.out_of_memory = 1 + std::uint32_t(r.below(3));
              j.history.bytes_floor = 10e9;
              if (r.chance(0.7)) {
                j.history.tried_gpus = 1u << r.below(4);
                j.history.tried_bytes =
                    s.cluster.gpus[r.below(s.cluster.gpus.size())].memory_bytes();
              }
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
  CHECK(troupe::test::has_facts(scene_of_policies::why_of(*p, s, 1).text,
                                {"8 GPUs", "36.7 GB", "4"}));
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
  double max = 0;
  for (const auto& x : *j.plans) max = std::max(max, x.bytes_per_gpu);
  j.history.bytes_floor = max - 1;
  const auto second = p->decide(s.view(), r);
  REQUIRE(second.size() == 1);
  CHECK(second[0].how.bytes_per_gpu == max);
  j.history.bytes_floor = max;
  const auto third = p->decide(s.view(), r);
  REQUIRE(third.size() == 1);
  CHECK(third[0].what == decision::kind::give_up);
}

namespace {

/// A job under opportunistic that runs out of memory wherever it is.
struct retried_job {
  scene s;
  std::unique_ptr<policy> by = make_policy("opportunistic");

  retried_job(const cluster& c, const job_spec& spec) : s(c) { s.add(1, spec); }
  job_view& job() { return s.waiting.at(1); }
  std::vector<decision> decide() {
    random_source r(1);
    return by->decide(s.view(), r);
  }
  std::string why() const { return scene_of_policies::why_of(*by, s, 1).text; }
  /// Where it starts; empty: it waits.
  allocation starts() {
    const auto d = decide();
    if (d.empty()) return {};
    REQUIRE(d.size() == 1);
    REQUIRE(d[0].what == decision::kind::start);
    return d[0].where;
  }
  void ran_out(std::uint32_t gpus, double memory_gb) {
    ++job().history.out_of_memory;
    job().history.tried_gpus = gpus;
    job().history.tried_bytes = memory_gb * 1e9;
  }
  /// Starts, and runs out of memory there.
  allocation fails() {
    const auto where = starts();
    double memory_gb = 1000;
    for (const auto& n : where) memory_gb = std::min(memory_gb, s.cluster.gpu_of(n.node).memory_gb);
    ran_out(total_gpus(where), memory_gb);
    return where;
  }
  /// The reason why it is given up.
  std::string given_up() {
    const auto d = decide();
    REQUIRE(d.size() == 1);
    REQUIRE(d[0].what == decision::kind::give_up);
    return d[0].why.text;
  }
};

/// Nodes: four A100 of 40 GB, two of 80 GB, eight RTX 2080 Ti of 11 GB.
cluster three_sizes() {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 1, 4);
  sample::add_nodes(c, sample::a100_80, 1, 2);
  sample::add_nodes(c, sample::rtx2080ti, 1, 8);
  return c;
}

}  // namespace

TEST_CASE(
    "opportunistic takes the fastest GPUs, after an out-of-memory larger ones, then twice as "
    "many, up to the cluster") {
  retried_job j{three_sizes(), sample::job(sample::gpt2_7b, 2)};
  const auto first = j.decide();
  REQUIRE(first.size() == 1);
  CHECK(first[0].how.bytes_per_gpu == 0);  // there is no prediction that it fits
  CHECK(j.fails() == allocation{{0, 1}});
  CHECK(j.fails() == allocation{{1, 1}});  // of 80 GB
  CHECK(j.fails() == allocation{{1, 2}});  // none is larger: two of these
  CHECK(j.fails() == allocation{{0, 4}});  // not the two of 80 GB and two others
  CHECK(j.fails() == allocation{{2, 8}});
  CHECK(total_gpus(j.fails()) == 14);
  CHECK(troupe::test::has_facts(j.given_up(), {"out of memory", "all 14 GPUs of the cluster"}));
  CHECK(j.why() == j.given_up());
}

TEST_CASE("opportunistic's second attempt is on the fastest idle of the larger types") {
  cluster c;
  sample::add_nodes(c, sample::rtx6000, 1, 2);
  sample::add_nodes(c, sample::a100_40, 1, 2);
  sample::add_nodes(c, sample::rtx2080ti, 1, 8);
  retried_job j{c, sample::job(sample::gpt2_7b, 2, 2)};
  j.ran_out(2, 11);
  CHECK(j.starts() == allocation{{1, 2}});
  j.s.idle.set_idle(1, 0);
  CHECK(j.starts() == allocation{{0, 2}});
  // Three of the larger ones exist only of both types.
  j.s.idle.set_idle(1, 2);
  j.ran_out(3, 11);
  CHECK(j.starts() == allocation{{1, 2}, {0, 1}});
  // Five do not.
  j.ran_out(5, 11);
  CHECK(total_gpus(j.starts()) == 10);
}

TEST_CASE("opportunistic lets a job wait for larger GPUs, and says so") {
  retried_job j{three_sizes(), sample::job(sample::gpt2_7b, 2)};
  j.s.idle.set_idle(0, 0);
  j.s.idle.set_idle(1, 0);
  j.s.idle.set_idle(2, 3);
  CHECK(j.why() == "needs 1 GPUs; 3 are idle");
  j.ran_out(1, 40);
  CHECK(j.starts().empty());
  CHECK(j.why() ==
        "needs 1 GPUs of more than 40.0 GB (ran out of memory on 1 of 40.0 GB); 0 are idle");
  j.s.idle.set_idle(1, 1);
  j.ran_out(1, 80);
  CHECK(j.starts().empty());
  CHECK(j.why() ==
        "needs 2 GPUs of at least 80.0 GB (1 requested, ran out of memory on 1, and larger ones "
        "are too few); 1 are idle");
}

TEST_CASE("opportunistic asks for larger GPUs only where the job allows them") {
  auto spec = sample::job(sample::gpt2_7b, 2, 2);
  spec.limits.required_gpu_type = "A100-40GB";
  retried_job typed{three_sizes(), spec};
  CHECK(typed.fails() == allocation{{0, 2}});
  CHECK(typed.fails() == allocation{{0, 4}});
  CHECK(troupe::test::has_facts(typed.given_up(), {"all 4 GPUs", "may use"}));

  spec.limits.required_gpu_type.clear();
  spec.limits.max_gpus = 2;
  retried_job bounded{three_sizes(), spec};
  CHECK(bounded.fails() == allocation{{0, 2}});
  CHECK(bounded.fails() == allocation{{1, 2}});
  CHECK(troupe::test::has_facts(bounded.given_up(), {"all 2 GPUs", "may use"}));

  auto c = three_sizes();
  c.gpus[1].quota = 1;
  spec.limits.max_gpus.reset();
  retried_job within_quota{c, spec};
  CHECK(within_quota.fails() == allocation{{0, 2}});
  CHECK(within_quota.starts() == allocation{{0, 4}});
}

TEST_CASE("opportunistic doubles the count if nobody wrote down what the last attempt had") {
  retried_job j{three_sizes(), sample::job(sample::gpt2_7b, 2)};
  j.job().history.out_of_memory = 1;
  CHECK(j.starts() == allocation{{1, 2}});
  CHECK(troupe::test::has_facts(j.why(), {"2 GPUs", "1 requested", "1 times"}));
  j.job().history.out_of_memory = 4;  // 8 did not do
  CHECK(total_gpus(j.starts()) == 14);
  j.job().history.out_of_memory = 5;
  CHECK(troupe::test::has_facts(j.given_up(), {"out of memory", "14 GPUs"}));
}

TEST_CASE("fcfs and opportunistic have no plans for more GPUs than the cluster has") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 1, 4);
  auto job = sample::job(sample::gpt2_small, 8, 16);
  for (const auto* name : {"fcfs", "opportunistic"}) {
    INFO(name);
    const auto p = make_policy(name);
    CHECK(p->traits().plans_by_request);
    planning_budget budget;
    const auto plans = p->plans_of(c, job, budget);
    REQUIRE_FALSE(plans);
    CHECK(plans.error().code == reason::kind::infeasible);
    CHECK(plans.error().text == "requests 16 GPUs; the cluster has 4");
    job.request.gpus = 4;
    CHECK(p->plans_of(c, job, budget));
    job.request.gpus = 16;
  }
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
  typed.request.type = "H100-80GB";
  s.add(5, typed);
  random_source r(1);
  const auto p = make_policy("fcfs");
  const auto d = p->decide(s.view(), r);
  REQUIRE(d.size() == 2);
  CHECK(d[0].what == decision::kind::give_up);
  CHECK(troupe::test::has_facts(d[0].why.text, {"16 GPUs", "4"}));
  CHECK(d[1].job == 2);
  carry_out(s, d);
  CHECK(troupe::test::has_facts(scene_of_policies::why_of(*p, s, 3).text, {"2 GPUs", "1"}));
  CHECK(troupe::test::has_facts(scene_of_policies::why_of(*p, s, 4).text, {"job 3"}));
}
