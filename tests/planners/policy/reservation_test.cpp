#include <catch2/catch.hpp>

#include <algorithm>
#include <map>

#include "planners/plans/exact_gpus.hpp"
#include "planners/policy/with_exact_gpus.hpp"
#include "planners/policy/with_reservation.hpp"
#include "planners/scene.hpp"

using namespace troupe;
using namespace troupe::planners;
using scene_of_policies::carry_out;
using scene_of_policies::scene;

namespace {

job_spec program(std::uint32_t gpus, std::int32_t priority) {
  auto job = sample::job(sample::gpt2_small, 4, gpus);
  job.program.command = {"train"};
  job.iterations = 1;
  job.request.exact = true;
  job.priority = priority;
  return job;
}

std::shared_ptr<const policy> complete(std::string_view name) {
  return with_reservation(
      with_exact_gpus(with_trainings(std::shared_ptr<const policy>{make_policy(name)})));
}

/// Programs that run for random times, under a policy that decides whenever one comes or ends.
struct program_cluster {
  scene s;
  std::shared_ptr<const policy> by;
  random_source random;
  std::map<job_id, double> ends_s;
  job_id next = 1;

  program_cluster(cluster c, std::string_view name, std::uint64_t seed)
      : s{std::move(c)}, by{complete(name)}, random{seed} {
    s.by = by.get();
  }
  job_id submit(const job_spec& spec) {
    s.add(next, spec).submitted_s = s.now_s;
    return next++;
  }
  void decide() {
    random_source own{1};
    carry_out(s, by->decide(s.view(), own));
    for (const auto& [id, j] : s.running)
      ends_s.try_emplace(id, s.now_s + 100 + double(random.below(400)));
  }
  bool runs(job_id id) const { return s.running.contains(id); }
  /// The next program that ends, ends.
  void end_one() {
    const auto first =
        std::ranges::min_element(ends_s, {}, [](const auto& entry) { return entry.second; });
    s.now_s = std::max(s.now_s, first->second);
    for (const auto& share : s.running.at(first->first).where)
      s.idle.set_idle(share.node, s.idle.idle(share.node) + share.gpus);
    s.running.erase(first->first);
    ends_s.erase(first);
  }
};

}  // namespace

TEST_CASE(
    "a wide program starts when those that ran as it came have ended, whoever comes after it") {
  for (const auto name : policy_names()) {
    if (make_policy(name)->traits().round_s > 0)
      continue;  // stops no program either, but starts later
    for (const std::int32_t later : {-5, 0}) {
      CAPTURE(name, later);
      cluster c;
      sample::add_nodes(c, sample::a100_80, 1, 4);
      program_cluster x{c, name, 1};
      for (int i = 0; i < (later < 0 ? 8 : 4); ++i) x.submit(program(1, later));
      x.decide();
      REQUIRE(x.s.running.size() == 4);
      double last_s = 0;
      for (const auto& [id, end_s] : x.ends_s) last_s = std::max(last_s, end_s);
      const auto wide = x.submit(program(4, 0));
      for (int i = 0; i < 100 && !x.runs(wide); ++i) {
        x.submit(program(1, later));
        x.decide();
        if (!x.runs(wide)) x.end_one();
        x.decide();
      }
      REQUIRE(x.runs(wide));
      CHECK(x.s.now_s <= last_s);
    }
  }
}

TEST_CASE("a reservation keeps no more GPUs idle than its program needs") {
  std::size_t kept = 0;
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    CAPTURE(seed);
    random_source r{seed};
    program_cluster x{sample::random_cluster(r), "frenzy", seed};
    for (int step = 0; step < 12; ++step) {
      x.submit(program(1U << r.below(4), std::int32_t(r.below(2))));
      x.decide();
      const auto v = x.s.view();
      const auto held = reservation_of(v);
      // A job that could start waits for nothing but the reservation.
      for (const auto& [id, j] : x.s.waiting) {
        if (!j.plans || j.plans->empty()) continue;
        auto idle = x.s.idle;
        if (held)
          for (const auto& share : held->where)
            idle.set_idle(share.node, idle.idle(share.node) - share.gpus);
        if (held && held->job != id) REQUIRE_FALSE(place_exact(x.s.cluster, idle, j));
      }
      if (held) {
        std::uint32_t gpus = 0;
        for (const auto& share : held->where) gpus += share.gpus;
        REQUIRE(gpus < x.s.waiting.at(held->job).spec->request.gpus);
        kept += gpus;
      }
      if (r.chance(0.4) && !x.ends_s.empty()) x.end_one();
    }
  }
  CHECK(kept > 500);
}
