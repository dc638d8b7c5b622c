#include <catch2/catch.hpp>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "harness/facts.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/plans/exact_gpus.hpp"
#include "planners/plans/fits.hpp"
#include "planners/plans/places.hpp"
#include "planners/policy/checked_policy.hpp"
#include "planners/policy/with_exact_gpus.hpp"
#include "planners/sample.hpp"
#include "planners/scene.hpp"
#include "planners/variety.hpp"

using namespace troupe;
using namespace troupe::planners;
using scene_of_policies::as_stops_and_starts;
using scene_of_policies::carry_out;
using scene_of_policies::scene;
using troupe::test::has_facts;

namespace {

std::vector<std::shared_ptr<const policy>> all_policies() {
  std::vector<std::shared_ptr<const policy>> all;
  for (const auto name : policy_names())
    all.push_back(with_exact_gpus(std::shared_ptr<const policy>{make_policy(name)}));
  return all;
}

job_spec exact_program(std::uint32_t gpus) {
  auto job = sample::job(sample::gpt2_small, 1, gpus);
  job.name = "program";
  job.program.command = {"train"};
  job.request.exact = true;
  job.iterations = 1;
  return job;
}

/// Nodes of any size, up to four GPU types, some of them with a quota, some datacenters.
cluster any_cluster(random_source& r) {
  auto c = variety::some_cluster(r, 6);
  for (auto& n : c.nodes) n.gpus = 1 + std::uint32_t(r.below(8));
  if (r.chance(0.7))
    for (auto& g : c.gpus) g.quota = 0;
  return c;
}

job_spec any_program(random_source& r, const cluster& c) {
  auto job = exact_program(1 + std::uint32_t(r.below(24)));
  job.model = variety::some_model(r);
  const std::uint32_t batches[] = {1, 2, 3, 8, 32};
  job.global_batch = variety::one_of(r, batches);
  if (r.chance(0.4)) job.memory.emplace().gb = 5.0 * double(1 + r.below(12));
  if (r.chance(0.4)) job.assumed.model = true;
  if (r.chance(0.2))
    job.limits.required_gpu_type = job.request.type = c.gpus[r.below(c.gpus.size())].name;
  if (r.chance(0.3)) job.iterations = 1000;
  return job;
}

using datacenters = std::set<std::uint32_t>;

/// Is there a number of nodes of these types, in these datacenters, with an equal part of the GPUs
/// each?
bool has_equal_nodes(const cluster& c, const idle_index& idle, std::uint32_t gpus,
                     const std::set<gpu_index>& types, const datacenters& in) {
  for (std::uint32_t each = 1; each <= gpus; ++each) {
    if (gpus % each != 0) continue;
    std::uint32_t nodes = 0;
    for (node_index n = 0; n < c.nodes.size(); ++n)
      nodes += types.contains(c.nodes[n].gpu) && in.contains(c.nodes[n].datacenter) &&
               idle.idle(n) >= each;
    if (nodes >= gpus / each) return true;
  }
  return false;
}

/// By trying everything: has one type of the idle GPUs so many, with more than `bytes`?
bool one_type_can(const cluster& c, const idle_index& idle, const job_spec& job, double bytes,
                  const datacenters& in) {
  for (gpu_index g = 0; g < c.gpus.size(); ++g) {
    const auto& gpu = c.gpus[g];
    const bool allowed =
        job.limits.required_gpu_type.empty() || job.limits.required_gpu_type == gpu.name;
    if (!allowed || !(gpu.memory_bytes() > bytes) ||
        (gpu.quota > 0 && gpu.quota < job.request.gpus))
      continue;
    if (has_equal_nodes(c, idle, job.request.gpus, {g}, in)) return true;
  }
  return false;
}

bool some_types_can(const cluster& c, const idle_index& idle, const job_spec& job, double bytes,
                    const datacenters& in) {
  std::set<gpu_index> types;
  for (gpu_index g = 0; g < c.gpus.size(); ++g)
    if ((job.limits.required_gpu_type.empty() || job.limits.required_gpu_type == c.gpus[g].name) &&
        c.gpus[g].memory_bytes() > bytes)
      types.insert(g);
  return has_equal_nodes(c, idle, job.request.gpus, types, in);
}

/// By trying every set: the datacenters of which the program may have GPUs together. One alone, if
/// one is large enough; else those of which each two have a link.
std::vector<datacenters> sets_of(const cluster& c, const job_spec& job, double bytes) {
  std::vector<datacenters> alone, linked;
  const idle_index all{c};
  bool one_can = false;
  for (std::uint32_t members = 1; members < 1U << c.datacenters.size(); ++members) {
    datacenters set;
    for (std::uint32_t d = 0; d < c.datacenters.size(); ++d)
      if (members >> d & 1) set.insert(d);
    bool are_linked = true;
    for (const auto a : set)
      for (const auto b : set)
        are_linked &= a >= b || std::ranges::any_of(c.wan, [&](const wan_link& w) {
                        return std::minmax(w.a, w.b) == std::minmax(a, b);
                      });
    if (set.size() == 1) alone.push_back(set);
    if (are_linked) linked.push_back(set);
    one_can |= set.size() == 1 && some_types_can(c, all, job, bytes, set);
  }
  return one_can ? alone : linked;
}

bool one_type_can(const cluster& c, const idle_index& idle, const job_spec& job, double bytes) {
  return std::ranges::any_of(sets_of(c, job, bytes), [&](const datacenters& in) {
    return one_type_can(c, idle, job, bytes, in);
  });
}

bool some_types_can(const cluster& c, const idle_index& idle, const job_spec& job, double bytes) {
  return std::ranges::any_of(sets_of(c, job, bytes), [&](const datacenters& in) {
    return some_types_can(c, idle, job, bytes, in);
  });
}

/// The starts of the program; each must be right.
std::size_t starts_of(const scene& s, const policy& p, job_id id) {
  random_source random{1};
  std::size_t starts = 0;
  auto idle = s.idle;
  for (const auto& d : as_stops_and_starts(p.decide(s.view(), random))) {
    if (d.what != decision::kind::start || d.job != id) continue;
    ++starts;
    const auto& spec = *s.waiting.at(id).spec;
    CHECK(d.how.gpus() == spec.request.gpus);
    CHECK(total_gpus(d.where) == spec.request.gpus);
    for (const auto& share : d.where) CHECK(share.gpus == d.where.front().gpus);
    if (const auto ok = fits(s.cluster, idle, d.how, d.where); !ok) FAIL_CHECK(ok.error().text);
    if (const auto ok = within_bounds(s.cluster, spec, d.where); !ok) FAIL_CHECK(ok.error().text);
  }
  return starts;
}

}  // namespace

TEST_CASE("a program gets exactly its GPUs under every policy, wherever as many of each node are") {
  const auto policies = all_policies();
  std::size_t started = 0, of_several_types = 0, refused = 0;
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    random_source r{seed};
    const auto c = any_cluster(r);
    const auto job = any_program(r, c);
    CAPTURE(seed, job.request.gpus);
    // Without a known memory every GPU will do.
    const bool by_model = !job.memory && !job.assumed.model;
    const double bytes = job.memory ? job.memory->gb * bytes_per_gb : 0;
    const idle_index all{c};
    const auto plans = exact_plans(c, job);
    if (!by_model) {
      const bool quota = std::ranges::any_of(c.gpus, [](const gpu_type& g) { return g.quota > 0; });
      const bool one = one_type_can(c, all, job, bytes), some = some_types_can(c, all, job, bytes);
      if (one) REQUIRE(plans);
      if (!some) REQUIRE(!plans);
      if (!one && some && !quota) {
        REQUIRE(plans);
        ++of_several_types;
      }
    }
    for (const auto& p : policies) {
      CAPTURE(p->name());
      scene s{c};
      s.by = p.get();
      s.add(1, job);
      if (plans)
        CHECK(starts_of(s, *p, 1) == 1);
      else
        CHECK(starts_of(s, *p, 1) == 0);
      if (!plans) CHECK(s.waiting.at(1).why.code == reason::kind::infeasible);
    }
    (plans ? started : refused) += 1;
  }
  CHECK(started > 350);
  CHECK(refused > 100);
  CHECK(of_several_types > 20);
}

TEST_CASE("a program starts on what is idle as soon as its type has as many GPUs on each node") {
  const auto policies = all_policies();
  std::size_t yes = 0, no = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    random_source r{seed};
    const auto c = any_cluster(r);
    auto job = exact_program(1 + std::uint32_t(r.below(12)));
    job.assumed.model = true;
    if (!one_type_can(c, idle_index{c}, job, 0)) continue;
    for (const auto& p : policies) {
      CAPTURE(seed, job.request.gpus, p->name());
      scene s{c};
      s.by = p.get();
      s.add(1, job);
      random_source lost{seed};
      for (node_index n = 0; n < c.nodes.size(); ++n)
        s.idle.set_idle(n, std::uint32_t(lost.below(c.nodes[n].gpus + 1)));
      const bool can = one_type_can(c, s.idle, job, 0);
      CHECK(starts_of(s, *p, 1) == std::size_t{can});
      if (!can) CHECK(!scene_of_policies::why_of(*p, s, 1).text.empty());
      (can ? yes : no) += 1;
    }
  }
  CHECK(yes > 500);
  CHECK(no > 500);
}

TEST_CASE("every policy's own decisions give programs their numbers beside other jobs") {
  for (const auto name : policy_names()) {
    CAPTURE(name);
    const std::shared_ptr<const policy> alone{make_policy(name)};
    for (const auto& p : {alone, with_exact_gpus(alone)}) {
      std::size_t ran = 0;
      for (std::uint64_t seed = 1; seed <= 15; ++seed) {
        CAPTURE(seed);
        random_source r{seed};
        scene s{variety::some_cluster(r, 6)};
        s.by = p.get();
        for (job_id id = 1; id <= 12; ++id) {
          if (r.chance(0.5))
            s.add(id, any_program(r, s.cluster));
          else
            s.add(id, variety::some_program(r, s.cluster));
        }
        for (int round = 0; round < 3; ++round) {
          random_source random{seed};
          carry_out(s, p->decide(s.view(), random));  // requires within_bounds() of each start
          for (const auto& [id, j] : s.running) ran += facts_of(*j.spec).exact_gpus;
          if (s.running.empty()) continue;
          const auto ended = s.running.begin()->first;
          for (const auto& share : s.running.at(ended).where)
            s.idle.set_idle(share.node, s.idle.idle(share.node) + share.gpus);
          s.running.erase(ended);
          s.now_s += 1000;
        }
      }
      CHECK(ran > 20);
    }
  }
}

TEST_CASE("a policy that knows nothing of exact numbers cannot start a program with another one") {
  struct stubborn final : policy {
    std::string_view name() const override { return "stubborn"; }
    std::vector<decision> decide(const snapshot& s, random_source&) const override {
      std::vector<decision> out;
      for (const auto& [id, j] : s.waiting) {
        plan how;
        how.bytes_per_gpu = 1;
        out.push_back({decision::kind::start, id, how, {{0, 1}}, {}});
      }
      return out;
    }
    reason why_waiting(const snapshot&, job_id) const override { return {}; }
  };
  cluster c;
  sample::add_nodes(c, sample::a100_40, 2, 4);
  const auto p = with_exact_gpus(std::make_shared<stubborn>());
  scene s{c};
  s.by = p.get();
  s.add(1, exact_program(8));
  CHECK(starts_of(s, *p, 1) == 1);
  scene busy{c};
  busy.by = p.get();
  busy.add(1, exact_program(8));
  busy.idle.set_idle(1, 3);
  CHECK(starts_of(busy, *p, 1) == 0);
  CHECK(scene_of_policies::why_of(*p, busy, 1).text == "needs 8 A100-40GB; 7 are idle");
}

TEST_CASE("a program's GPUs are of one node if possible, else as many of each of the fewest") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 3, 8);
  idle_index idle{c};
  idle.set_idle(0, 5);
  idle.set_idle(1, 3);
  idle.set_idle(2, 3);
  plan how;
  how.gpu_types = {0};
  const auto place = [&](std::uint32_t gpus) {
    how.data_parallel = gpus;
    return place_exact(c, idle, exact_program(gpus), how);
  };
  CHECK(place(3) == allocation{{1, 3}});
  CHECK(place(5) == allocation{{0, 5}});
  CHECK(place(6) == allocation{{1, 3}, {2, 3}});
  CHECK(place(9) == allocation{{1, 3}, {2, 3}, {0, 3}});
  CHECK(place(7).empty());
  CHECK(place(10).empty());
}

TEST_CASE("a program's nodes are of one datacenter where one has the GPUs") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 2, 4);
  sample::add_nodes(c, sample::a100_40, 4, 2);
  c.datacenters.push_back({"far", ""});
  c.nodes[1].datacenter = 1;
  plan how;
  how.gpu_types = {0};
  how.data_parallel = 8;
  const auto near = place_exact(c, idle_index{c}, exact_program(8), how);
  CHECK(near.size() == 4);
  for (const auto& share : near) CHECK(c.nodes[share.node].datacenter == 0);
  idle_index idle{c};
  idle.set_idle(2, 0);
  idle.set_idle(3, 0);
  // It waits for the one that is large enough, unless it may be spread and the two are linked.
  CHECK(place_exact(c, idle, exact_program(8), how).empty());
  auto across = exact_program(8);
  across.request.across_datacenters = true;
  CHECK(place_exact(c, idle, across, how).empty());
  c.wan.push_back({0, 1, 40, 5, 0, 0, false});
  CHECK(place_exact(c, idle, across, how) == allocation{{0, 4}, {1, 4}});
}

TEST_CASE("a program that no GPUs of the cluster can run is refused with what it needs") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 1, 5);
  sample::add_nodes(c, sample::a100_80, 1, 3);
  const auto refusal = [&](const job_spec& job) {
    const auto plans = exact_plans(c, job);
    return plans ? std::string{} : plans.error().text;
  };
  CHECK(refusal(exact_program(5)).empty());
  CHECK(refusal(exact_program(6)).empty());  // three of each
  auto job = exact_program(8);
  job.assumed.model = true;
  CHECK(refusal(job) ==
        "needs 8 GPUs, the same number on each node, which no nodes of the cluster have; "
        "6 would fit (`unequal: true` permits numbers that differ)");
  job.request.gpus = 9;
  CHECK(refusal(job) == "needs 9 GPUs; the cluster has 8");
  job.request.gpus = 1;
  job.memory.emplace().gb = 100;
  CHECK(refusal(job) == "needs more than 100.0 GB per GPU; the largest here has 80 GB");
  job.memory->gb = 50;
  job.request.gpus = 4;
  CHECK(refusal(job) == "needs 4 GPUs of more than 50.0 GB; the cluster has 3");
  job.limits.required_gpu_type = "T4";
  CHECK(refusal(job).starts_with("the cluster has no T4 (gpu_type); it has "));
  job.limits.required_gpu_type = "a100";
  CHECK(refusal(job).starts_with("the cluster has no a100 (gpu_type); did you mean A100-"));
  job.limits.required_gpu_type.clear();
  c.gpus[1].quota = 2;
  job.request.gpus = 3;
  CHECK(refusal(job) == "needs 3 GPUs of more than 50.0 GB; a job may have 2 (quota)");
}

TEST_CASE("a program of unknown memory that ran out of it is planned for GPUs with more") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 1, 4);
  sample::add_nodes(c, sample::a100_80, 1, 4);
  auto job = exact_program(2);
  job.assumed.model = true;
  const auto plans = exact_plans(c, job);
  REQUIRE(plans);
  REQUIRE(plans->size() == 2);
  // As the ledger counts it: what the GPUs had, over what was predicted.
  const auto factor = 1.0001 * c.gpus[0].memory_bytes() / plans->front().bytes_per_gpu;
  const auto again = exact_plans(with_more_headroom(c, factor), job);
  REQUIRE(again);
  REQUIRE(again->size() == 1);
  CHECK(again->front().gpu_types == std::vector<gpu_index>{1});
}

TEST_CASE("of other jobs the number of GPUs stays a bound, and max_gpus bounds a program") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 2, 4);
  auto job = exact_program(4);
  CHECK(within_bounds(c, job, {{0, 4}}));
  CHECK(within_bounds(c, job, {{0, 2}, {1, 2}}));
  CHECK(has_facts(within_bounds(c, job, {{0, 2}}).error().text, {"2 GPUs", "exactly 4 (gpus)"}));
  CHECK(has_facts(within_bounds(c, job, {{0, 3}, {1, 1}}).error().text, {"3", "n0", "1", "n1"}));
  job.request.exact = false;
  job.limits.max_gpus = 4;
  CHECK(within_bounds(c, job, {{0, 3}, {1, 1}}));
  CHECK(has_facts(within_bounds(c, job, {{0, 4}, {1, 1}}).error().text, {"5", "4 (max_gpus)"}));
  job.program.command.clear();
  CHECK(has_facts(within_bounds(c, job, {{0, 4}, {1, 1}}).error().text, {"5", "4 (gpus)"}));
}

TEST_CASE("programs of unknown length count as jobs of middle length to the default policy") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 1, 1);
  const auto p = make_policy("troupe");
  scene s{c};
  s.by = p.get();
  const auto add = [&](job_id id, std::uint64_t iterations) {
    auto job = exact_program(1);
    job.iterations = iterations;
    s.add(id, job);
  };
  add(1, 1000);
  add(2, 1);  // unknown
  add(3, 50);
  add(4, 100000);
  add(5, 1);
  std::vector<job_id> order;
  while (!s.waiting.empty()) {
    random_source random{1};
    const auto decisions = p->decide(s.view(), random);
    REQUIRE(decisions.size() == 1);
    order.push_back(decisions[0].job);
    CHECK(decisions[0].why.text.find(" s to its end") == std::string::npos);
    s.waiting.erase(decisions[0].job);
  }
  CHECK(order == std::vector<job_id>{3, 1, 2, 4, 5});
}
