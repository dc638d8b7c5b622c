#include "planners/policy/checked_policy.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "messages/domain/work_kind.hpp"

namespace troupe::planners {

namespace {

/// Calls the policy and converts its exceptions to policy_failure.
template <class F>
auto guarded(const std::string& who, F&& call) {
  try {
    return call();
  } catch (const policy_failure&) {
    throw;
  } catch (const std::exception& e) {
    throw policy_failure(fmt::format("{} threw: {}", who, e.what()));
  } catch (...) {
    throw policy_failure(who + " threw an unknown exception");
  }
}

// fits() and the evaluation of plans index the cluster by the numbers in a decision, and divide by
// the sizes of its plan. Both are checked here, once, so that a plug-in's mistake becomes a
// sentence that names it, and no invariant of the controller fails.

/// Why the plan cannot be checked by fits() at all; empty: it can.
std::string objection_to(const cluster& c, const plan& how) {
  if (how.data_parallel == 0 || how.tensor_parallel == 0 || how.pipeline_parallel == 0)
    return "with a plan without parts";
  const auto no_type = [&](gpu_index g) { return g >= c.gpus.size(); };
  for (const auto& g : groups_of(how))
    for (const auto& s : g.stages) {
      if (s.tensor_parallel == 0) return "with a stage on no GPU";
      if (s.gpu && no_type(*s.gpu))
        return fmt::format("with a stage on GPU type {} of {}", *s.gpu, c.gpus.size());
    }
  if (const auto g = std::ranges::find_if(how.gpu_types, no_type); g != how.gpu_types.end())
    return fmt::format("with a plan for GPU type {} of {}", *g, c.gpus.size());
  return {};
}

std::string objection_to(const snapshot& s, const decision& d) {
  const auto* job = view_of(s, d.job);
  if (!job) return "which is neither waiting nor running";
  const bool stops = d.what == decision::kind::stop || d.what == decision::kind::move;
  if (stops && s.running.contains(d.job) && !job->facts().stoppable)
    return "which is a running program without `elastic:`: no policy stops or moves it";
  if (!d.starts()) return {};
  for (const auto other : d.with)
    if (other == d.job || !s.waiting.contains(other) || std::ranges::count(d.with, other) > 1)
      return fmt::format("in a union with job {}, which is in it already, or does not wait", other);
  if (d.after && !s.running.contains(*d.after) && !s.unions.contains(*d.after))
    return fmt::format("after job {}, which is not running", *d.after);
  for (const auto& share : d.where)
    if (share.node >= s.cluster.nodes.size())
      return fmt::format("on node {} of {}", share.node, s.cluster.nodes.size());
  return objection_to(s.cluster, d.how);
}

}  // namespace

checked_policy::checked_policy(std::shared_ptr<const policy> inner, std::string who)
    : wrapped_policy{std::move(inner)}, who_{std::move(who)} {
  guarded(who_, [this] {
    name_ = this->inner().name();
    traits_ = this->inner().traits();
  });
  if (!std::isfinite(traits_.round_s) || traits_.round_s < 0)
    throw policy_failure(
        fmt::format("{} has an invalid round_s of {} seconds", who_, traits_.round_s));
}

expected<std::vector<plan>> checked_policy::plans_of(const cluster& c, const job_spec& job,
                                                     planning_budget& budget) const {
  auto plans = guarded(who_, [&] { return inner().plans_of(c, job, budget); });
  if (!plans) return plans;
  for (const auto& p : *plans)
    if (const auto why = objection_to(c, p); !why.empty())
      throw policy_failure(fmt::format("{} plans job '{}' {}", who_, job.name, why));
  return plans;
}

std::vector<decision> checked_policy::decide(const snapshot& s, random_source& random) const {
  auto decisions = guarded(who_, [&] { return inner().decide(s, random); });
  for (const auto& d : decisions)
    if (const auto why = objection_to(s, d); !why.empty())
      throw policy_failure(fmt::format("{} decides about job {} {}", who_, d.job, why));
  return decisions;
}

double checked_policy::decide_again_s(const snapshot& s) const {
  const double again_s = guarded(who_, [&] { return inner().decide_again_s(s); });
  if (!std::isfinite(again_s) || again_s < 0)
    throw policy_failure(fmt::format("{} asks to decide again in {} seconds", who_, again_s));
  return again_s;
}

reason checked_policy::why_waiting(const snapshot& s, job_id job) const {
  try {
    return guarded(who_, [&] { return inner().why_waiting(s, job); });
  } catch (const policy_failure& e) {
    return {reason::kind::unknown, e.what()};
  }
}

}  // namespace troupe::planners
