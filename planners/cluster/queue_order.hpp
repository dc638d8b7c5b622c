#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "planners/cluster/snapshot.hpp"

namespace troupe::planners {

// The order in which every policy serves jobs, and small steps of a pass over the queue that most
// policies share.

/// Larger priority first, order of arrival within one priority.
inline void by_priority(std::vector<const job_view*>& jobs) {
  const auto priority = [](const job_view* j) { return j->spec->priority; };
  if (std::ranges::is_sorted(jobs, std::greater{}, priority)) return;  // the usual case
  std::ranges::stable_sort(jobs, std::greater{}, priority);
}

/// Those of the jobs for which `is_meant` holds, in queue order: pointers into the snapshot's list,
/// which is in the order of arrival.
template <class Condition>
std::vector<const job_view*> in_order(const job_views& jobs, Condition is_meant) {
  std::vector<const job_view*> queue;
  for (const auto& [id, j] : jobs)
    if (is_meant(j)) queue.push_back(&j);
  by_priority(queue);
  return queue;
}
inline std::vector<const job_view*> all_in_order(const job_views& jobs) {
  return in_order(jobs, [](const job_view&) { return true; });
}
/// The waiting programs, or trainings.
inline std::vector<const job_view*> in_order(const job_views& waiting, bool trainings = false) {
  return in_order(waiting, [&](const job_view& j) { return j.training == trainings; });
}

inline bool has_plans(const job_view& j) {
  return j.plans && !j.plans->empty();
}

/// Why a job without plans can never run on this cluster: the planner's own reason. After an
/// attempt that ran out of memory, plans are made with the headroom that it implies, which may
/// leave none.
inline reason why_none(const job_view& j) {
  reason why = j.why.text.empty() ? reason{reason::kind::infeasible, "no plan fits it"} : j.why;
  if (j.history.out_of_memory > 0)
    why.text = "ran out of memory; with the headroom that this implies: " + why.text;
  return why;
}

/// The answer to a question about a job that has started, ended or never existed.
inline reason not_waiting(job_id job) {
  return {reason::kind::unknown, "job " + std::to_string(job) + " is not waiting"};
}

/// The job in any of the snapshot's lists, or null.
inline const job_view* view_of(const snapshot& s, job_id job) {
  for (const auto* views : {&s.waiting, &s.running, &s.moving})
    if (const auto at = views->find(job); at != views->end()) return &at->second;
  return nullptr;
}

/// Removes an allocation from the idle GPUs, as far as they are idle: a job that is stopped in the
/// same decisions may still have some of them.
inline void take(idle_index& idle, const allocation& where) {
  for (const auto& share : where) {
    const auto n = idle.idle(share.node);
    idle.set_idle(share.node, n - std::min(n, share.gpus));
  }
}

/// Idle GPUs from which a pass takes. Copied at the first change: on a full cluster most passes
/// start nothing, and an index of thousands of nodes is not cheap to copy.
class remaining_idle {
 public:
  explicit remaining_idle(const idle_index& all) : all_{all} {}

  const idle_index& operator*() const { return rest_ ? *rest_ : all_; }
  const idle_index* operator->() const { return &**this; }
  void take(const allocation& where) {
    if (!rest_) rest_.emplace(all_);
    planners::take(*rest_, where);
  }

 private:
  const idle_index& all_;
  std::optional<idle_index> rest_;
};

}  // namespace troupe::planners
