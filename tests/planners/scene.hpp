#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "messages/domain/work_kind.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/fits.hpp"
#include "planners/plans/places.hpp"
#include "planners/policy/placement.hpp"
#include "planners/policy/policy.hpp"
#include "planners/policy/with_trainings.hpp"
#include "planners/sample.hpp"
#include "planners/troupe/assignment.hpp"

namespace scene_of_policies {

inline constexpr double restart_s = 30;  // a cluster's default
/// How long a started job is left alone under Troupe's policy, at most.
inline constexpr double settling_s = (troupe::planners::troupe_options{}.settle_starts +
                                      troupe::planners::troupe_options{}.settle_step) *
                                     restart_s;

using namespace troupe;
using namespace troupe::planners;

// A cluster with some jobs running and some waiting: what a snapshot looks at.
struct scene {
  troupe::cluster cluster;
  idle_index idle;
  job_views waiting, running;  // pipelines too
  double now_s = 5000;
  const policy* by = nullptr;  // whose plans jobs have; null: plans_for's

  explicit scene(troupe::cluster c) : cluster(std::move(c)), idle(cluster) {}
  mutable wait_notes notes;  // of the decisions on it

  snapshot view() const {
    snapshot s{now_s, cluster, idle, waiting, running};
    s.notes = &notes;
    return s;
  }

  job_view& add(job_id id, const job_spec& spec) {
    auto& j = waiting[id];
    j.id = id;
    j.spec = std::make_shared<job_spec>(spec);
    j.submitted_s = double(id);
    planning_budget budget;
    if (auto plans = by ? by->plans_of(cluster, spec, budget) : plans_for(cluster, spec))
      j.plans = std::make_shared<std::vector<plan>>(*plans);
    else
      j.plans = std::make_shared<std::vector<plan>>(), j.why = plans.error();
    j.training = runs_as_pipelines(spec, j.plans.get());
    return j;
  }
};

// A move is a stop, which comes before whatever needs its GPUs, and a start.
inline std::vector<decision> as_stops_and_starts(const std::vector<decision>& decisions) {
  std::vector<decision> steps;
  for (const auto& d : decisions)
    if (d.what == decision::kind::move) steps.push_back({decision::kind::stop, d.job, {}, {}, {}});
  for (auto d : decisions) {
    if (d.what == decision::kind::move) d.what = decision::kind::start;
    steps.push_back(std::move(d));
  }
  return steps;
}

// Carries out decisions as the world would, and requires that each may be.
inline void carry_out(scene& s, const std::vector<decision>& decisions) {
  std::set<job_id> started, ended;
  job_views stopped;
  for (const auto& d : as_stops_and_starts(decisions)) {
    INFO("job " << d.job);
    if (d.what == decision::kind::stop) {
      REQUIRE(s.running.contains(d.job));
      auto j = s.running.extract(d.job).mapped();
      for (const auto& share : j.where)
        s.idle.set_idle(share.node, s.idle.idle(share.node) + share.gpus);
      j.where.clear();
      stopped[d.job] = j;
    } else if (d.what == decision::kind::start) {
      REQUIRE(started.insert(d.job).second);
      REQUIRE(!ended.contains(d.job));
      const bool waits = s.waiting.contains(d.job) || stopped.contains(d.job);
      REQUIRE(waits);
      const auto ok = fits(s.cluster, s.idle, d.how, d.where);
      if (!ok) FAIL(ok.error().text);
      const auto spec = (s.waiting.contains(d.job) ? s.waiting : stopped).at(d.job).spec;
      if (const auto within = within_bounds(s.cluster, *spec, d.where); !within)
        FAIL(within.error().text);
      for (const auto& share : d.where) {
        s.idle.set_idle(share.node, s.idle.idle(share.node) - share.gpus);
      }
      auto j = stopped.contains(d.job) ? stopped.extract(d.job).mapped()
                                       : s.waiting.extract(d.job).mapped();
      j.how = d.how;
      j.where = d.where;
      j.started_s = s.now_s;
      ++j.progress.attempts;
      s.running[d.job] = j;
    } else {
      REQUIRE(s.waiting.erase(d.job) == 1);
      REQUIRE(ended.insert(d.job).second);
      REQUIRE(!d.why.text.empty());
    }
  }
  for (auto& [id, j] : stopped) s.waiting[id] = j;
}

/// Why a job waits, after a decision that is not carried out.
inline reason why_of(const policy& p, const scene& s, job_id job) {
  random_source r{1};
  s.notes.clear();
  (void)p.decide(s.view(), r);
  return p.why_waiting(s.view(), job);
}

inline bool same(const std::vector<decision>& a, const std::vector<decision>& b) {
  return std::ranges::equal(a, b, [](const decision& x, const decision& y) {
    return x.what == y.what && x.job == y.job && x.how == y.how && x.where == y.where &&
           x.why == y.why;
  });
}

// A policy over a scene, whose decisions are carried out.
struct played_policy {
  scene s;
  std::unique_ptr<policy> by;

  played_policy(cluster c, std::string_view name)
      : s{std::move(c)}, by{with_trainings(make_policy(name))} {
    s.by = by.get();
  }
  std::vector<decision> decide() {
    random_source r{1};
    return by->decide(s.view(), r);
  }
  void settle() { carry_out(s, decide()); }
  void end(job_id id) {
    for (const auto& share : s.running.at(id).where)
      s.idle.set_idle(share.node, s.idle.idle(share.node) + share.gpus);
    s.running.erase(id);
  }
  std::uint32_t gpus(job_id id) const {
    const auto at = s.running.find(id);
    return at == s.running.end() ? 0 : total_gpus(at->second.where);
  }
  std::string type(job_id id) const {
    return s.cluster.gpu_of(s.running.at(id).where.at(0).node).name;
  }
};

}  // namespace scene_of_policies
