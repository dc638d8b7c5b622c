#include "planners/policy/with_exact_gpus.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "messages/domain/work_kind.hpp"
#include "planners/cluster/queue_order.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/exact_gpus.hpp"
#include "planners/plans/places.hpp"
#include "planners/plans/shortage.hpp"
#include "planners/policy/wrapped_policy.hpp"

namespace troupe::planners {

namespace {

bool is_exact(const job_view& j) {
  return j.facts().exact_gpus;
}

bool has_any(const job_views& jobs) {
  return std::ranges::any_of(jobs, [](const auto& entry) { return is_exact(entry.second); });
}

class exact_gpus_policy final : public wrapped_policy {
 public:
  explicit exact_gpus_policy(std::shared_ptr<const policy> inner)
      : wrapped_policy{std::move(inner)} {}

  expected<std::vector<plan>> plans_of(const cluster& c, const job_spec& job,
                                       planning_budget& budget) const override {
    return facts_of(job).exact_gpus ? exact_plans(c, job) : inner().plans_of(c, job, budget);
  }

  std::vector<decision> decide(const snapshot& s, random_source& random) const override {
    auto decisions = inner().decide(s, random);
    std::erase_if(decisions, [&](const decision& d) {
      const auto* j = d.starts() ? view_of(s, d.job) : nullptr;
      return j && is_exact(*j) && !within_bounds(s.cluster, *j->spec, d.where);
    });
    if (has_any(s.waiting) && s.idle.total_idle() > 0) start_first(s, decisions);
    return decisions;
  }

  reason why_waiting(const snapshot& s, job_id job) const override {
    const auto at = s.waiting.find(job);
    if (at == s.waiting.end() || !is_exact(at->second)) return inner().why_waiting(s, job);
    const auto& j = at->second;
    if (auto never = why_never(j)) return *never;
    if (place_exact(s.cluster, s.idle, j)) return inner().why_waiting(s, job);
    auto why = why_too_few(s, j);
    // The reason: what the policy alone knows: that running jobs are not stopped for it yet, and
    // until when.
    const auto own = inner().why_waiting(s, job).text;
    if (const auto clause = own.find(" began lately"); clause != own.npos)
      why += own.substr(own.rfind("; ", clause));
    return {reason::kind::insufficient, std::move(why)};
  }

 private:
  /// Policies that count GPUs of one pool (Gandiva, Gavel, ElasticFlow, Crius) never start a
  /// program that needs nodes of two, and would block it for ever. Only the front of the queue is
  /// looked at, and only up to the first job that is not such a program or finds no room: nothing
  /// overtakes a job that the policy had reasons to leave waiting.
  static void start_first(const snapshot& s, std::vector<decision>& decisions) {
    std::set<job_id> decided;
    auto idle = s.idle;
    for (const auto& d : decisions) {
      decided.insert(d.job);
      if (d.starts()) take(idle, d.where);
    }
    for (const auto* j : all_in_order(s.waiting)) {
      if (decided.contains(j->id)) continue;
      auto p = is_exact(*j) ? place_exact(s.cluster, idle, *j) : std::nullopt;
      if (!p && is_exact(*j) && waits_for_nodes(s, *j)) continue;
      if (!p) return;
      take(idle, p->where);
      decisions.push_back(start_job(j->id, std::move(p->how), std::move(p->where)));
    }
  }

  static std::string why_too_few(const snapshot& s, const job_view& j) {
    std::set<gpu_index> types;  // that one of its plans is for
    for (const auto& p : *j.plans)
      if (p.bytes_per_gpu > j.history.bytes_floor)
        types.insert(p.gpu_types.begin(), p.gpu_types.end());
    std::vector<std::string> names;
    std::uint64_t idle = 0;
    for (const auto g : types) {
      names.push_back(s.cluster.gpus[g].name);
      idle = std::max<std::uint64_t>(idle, s.idle.idle_of(g));
    }
    plan any;
    any.gpu_types.assign(types.begin(), types.end());
    any.data_parallel = j.spec->request.gpus;
    return fmt::format("needs {} {}{}; {}{}", j.spec->request.gpus, fmt::join(names, " or "),
                       idle >= j.spec->request.gpus ? scatter_text(s.cluster, s.idle, j, any) : "",
                       idle_text(s, any), waits_for_text(s, j));
  }
};

}  // namespace

std::shared_ptr<const policy> with_exact_gpus(std::shared_ptr<const policy> inner) {
  return std::make_shared<const exact_gpus_policy>(std::move(inner));
}

}  // namespace troupe::planners
