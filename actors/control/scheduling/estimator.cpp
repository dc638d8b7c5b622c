#include "actors/control/scheduling/estimator.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"
#include "messages/codec/codec.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/policy/bound_warning.hpp"
#include "planners/policy/placement.hpp"

namespace troupe::actors {

namespace {

constexpr double time_limit_s = 5;  // of the plans of one job, where time is not virtual

/// Jobs with the same key have the same plans: the specification without fields that only identify
/// a job.
std::string key_of(job_spec spec, bool by_request) {
  spec.name.clear();
  if (facts_of(spec).has_processes)
    spec.program.command = {"a program"};  // which one does not matter
  spec.program.environment.clear();
  spec.program.working_directory.clear();
  spec.merging.dataset_card.clear();
  spec.priority = 0;
  if (!by_request && !facts_of(spec).exact_gpus) spec.request.gpus = 0, spec.request.type.clear();
  // Only with a deadline or budget do the plans depend on the amount of work.
  if (!spec.limits.deadline_s && !spec.limits.budget && !spec.limits.slo_s) spec.iterations = 0;
  const auto bytes = encode(journal_entry{job_accepted{0, 0, 0, std::move(spec), {}}});
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A rough cost of planning the job; it only determines the order of jobs.
std::uint64_t effort_of(const job_spec& spec) {
  const auto& m = spec.model;
  const std::uint64_t parts = m.operators.empty() ? m.layers : m.operators.size();
  return facts_of(spec).pipelines ? 1000 + parts * std::max(1u, spec.pipeline.stages)
                                  : parts / 1000;
}

}  // namespace

void estimator_state::on(const plans_request& w) {
  // Quick ones first: a training that takes seconds to plan must not hold up a hundred jobs that
  // take a millisecond each.
  queue_.emplace(std::pair{effort_of(*w.spec), ++arrivals_}, w);
  if (queue_.size() == 1) self_->send(estimator_actor{self_}, tick{});
}

/// One job for each message, so that requests that arrive meanwhile are sorted in.
void estimator_state::on(const tick&) {
  TROUPE_INVARIANT(!queue_.empty(), "the estimator is called while a job is to be planned");
  const auto next = queue_.extract(queue_.begin());
  self_->send(next.mapped().reply_to, plans_for(next.mapped()));
  if (!queue_.empty()) self_->send(estimator_actor{self_}, tick{});
}

namespace {

/// A policy from elsewhere may throw: the job has no plans then, and the reason says why.
expected<std::vector<plan>> plans_by_policy(const planners::policy& p, const cluster& c,
                                            const job_spec& job,
                                            planners::planning_budget& budget) {
  try {
    return p.plans_of(c, job, budget);
  } catch (const std::exception& e) {
    return refuse(reason::kind::unknown, e.what());
  }
}

}  // namespace

plans_reply estimator_state::plans_for(const plans_request& w) {
  constexpr std::size_t max_known = 20'000;
  if (known_.size() >= max_known) known_.clear();
  const auto& present = *options_.cluster;
  // By the cluster's version, too: another cluster has other plans. Old ones fall out when the
  // table is full.
  auto [it, is_new] =
      known_.try_emplace(fmt::format("{} {} {}", present.version, w.memory_factor,
                                     key_of(*w.spec, options_.policy->traits().plans_by_request)));
  bool late = false;
  if (is_new) {
    it->second.cluster = present.version;
    // A job that ran out of memory gets the headroom that it is known to need.
    const auto c = planners::with_more_headroom(present, w.memory_factor);
    it->second.memory_factor = w.memory_factor;
    std::function<bool()> out_of_time;
    if (!options_.virtual_time)
      out_of_time = [clock = clock_, until_s = clock_->now_s() + time_limit_s] {
        return clock->now_s() > until_s;
      };
    planners::planning_budget budget{planners::planning_budget::units_a_plan,
                                     std::move(out_of_time)};
    auto plans = plans_by_policy(*options_.policy, c, *w.spec, budget);
    late = budget.late();
    if (!plans) it->second.why = plans.error();
    if (plans) it->second.warning = planners::bound_warning(c, *w.spec, *plans, *options_.policy);
    it->second.plans =
        std::make_shared<const std::vector<plan>>(plans ? std::move(*plans) : std::vector<plan>{});
  }
  auto result = it->second;
  TROUPE_INVARIANT(result.plans && result.cluster == present.version,
                   "known plans are for the present cluster");
  TROUPE_INVARIANT(result.memory_factor == w.memory_factor,
                   "known plans have the memory that was asked for");
  result.job = w.job;
  if (late) known_.erase(it);  // an attempt with less load may finish in time
  return result;
}

}  // namespace troupe::actors
