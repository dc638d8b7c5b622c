// Espresso as a policy (docs/planners/espresso.md). The paper provisions one job from a cloud; here
// jobs of a queue get, in order, the cheapest idle GPUs that meet their time and budget (Algorithm
// 1), and are never preempted. That applies to simulated work whose stages are to be planned;
// everything else runs as under frenzy. Planning runs in the scheduler's thread, so a decision has
// a budget of work; a job that it does not suffice for waits and is tried again.

#include <fmt/format.h>

#include "messages/domain/work_kind.hpp"
#include "planners/cluster/queue_order.hpp"
#include "planners/espresso/cheapest_plan.hpp"
#include "planners/policy/policy.hpp"
#include "planners/policy/with_trainings.hpp"

namespace troupe::planners {
namespace {

/// Whether Espresso plans the job's stages: simulated work with a time limit or budget. Programs,
/// trainings and studies in slots bring their own stages or memory.
bool is_provisioned(const job_view& j) {
  const auto& s = *j.spec;
  return (s.limits.slo_s || s.limits.budget) && facts_of(s).simulated && !s.memory &&
         !s.pipeline.groups;
}

class espresso : public policy {
 public:
  std::string_view name() const override { return "espresso"; }

  bool places(const job_spec&, bool) const override { return true; }

  std::vector<decision> decide(const snapshot& s, random_source& random) const override {
    std::vector<decision> out;
    std::vector<const job_view*> provisioned;
    job_views others;
    for (const auto& [id, j] : s.waiting) {
      if (is_provisioned(j))
        provisioned.push_back(&j);
      else
        others.emplace(id, j);
    }
    if (provisioned.empty()) return frenzy_->decide(s, random);
    by_priority(provisioned);
    idle_index idle = s.idle;
    planning_budget budget{planning_budget::units_a_decision};
    for (const auto* j : provisioned) {
      // Each job gets half of what is left, so that one that is slow to plan leaves some for
      // others.
      planning_budget own{budget.left() / 2};
      auto d = place(s, idle, *j, own);
      budget.spend(budget.left() / 2 - own.left());
      if (!d) continue;
      if (d->what == decision::kind::start) take(idle, d->where);
      out.push_back(std::move(*d));
    }
    for (auto& d : frenzy_->decide(s.with(idle, others, s.running), random))
      out.push_back(std::move(d));
    return out;
  }

  reason why_waiting(const snapshot& s, job_id job) const override {
    const auto it = s.waiting.find(job);
    if (it == s.waiting.end() || !is_provisioned(it->second)) return frenzy_->why_waiting(s, job);
    const auto* note = s.note_of(job);
    if (!note || !note->why) return not_decided_yet();
    return {reason::kind::insufficient,
            fmt::format("on the {} idle GPUs: {}", s.idle.total_idle(), note->why->text)};
  }

 private:
  /// The job with the iterations that it still has to do.
  static job_spec left_of(const job_view& j) {
    auto job = *j.spec;
    job.iterations -= std::min(job.iterations - 1, j.progress.iterations_done);
    return job;
  }

  /// A start; give_up if not even an empty cluster has a plan; none: the job waits.
  static std::optional<decision> place(const snapshot& s, const idle_index& idle, const job_view& j,
                                       planning_budget& budget) {
    const auto job = left_of(j);
    auto p = cheapest_plan(s.cluster, idle, job, budget, {.bounded = false});
    if (p.plan)
      return decision{
          decision::kind::start, j.id, std::move(p.plan->how), std::move(p.plan->where), {}};
    s.note(j.id, p.why);
    if (budget.exhausted()) return {};
    const auto ever =
        cheapest_plan(s.cluster, idle_index{s.cluster}, job, budget, {.bounded = false});
    if (ever.plan || budget.exhausted()) return {};
    return give_up(j.id, ever.why);
  }

  std::unique_ptr<policy> frenzy_ = with_trainings(make_policy("frenzy"));
};

}  // namespace

std::unique_ptr<policy> make_espresso() {
  return std::make_unique<espresso>();
}

}  // namespace troupe::planners
