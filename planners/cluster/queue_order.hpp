#pragma once

#include <algorithm>
#include <vector>

#include "planners/cluster/snapshot.hpp"

namespace troupe::planners {

/// Larger priority first, order of arrival within one priority.
inline void by_priority(std::vector<const job_view*>& jobs) {
  const auto priority = [](const job_view* j) { return j->spec->priority; };
  if (std::ranges::is_sorted(jobs, std::greater{}, priority)) return;  // the usual case
  std::ranges::stable_sort(jobs, std::greater{}, priority);
}

/// The waiting programs, or trainings, in queue order.
inline std::vector<const job_view*> in_order(const job_views& waiting, bool trainings = false) {
  std::vector<const job_view*> jobs;
  jobs.reserve(trainings ? 0 : waiting.size());
  for (const auto& [id, j] : waiting)
    if (j.training == trainings) jobs.push_back(&j);
  by_priority(jobs);
  return jobs;
}

/// Why a job without plans can never run on this cluster.
inline reason why_none(const job_view& j) {
  reason why = j.why.text.empty() ? reason{reason::kind::infeasible, "no plan fits it"} : j.why;
  if (j.out_of_memory > 0)
    why.text = "ran out of memory; with the headroom that this implies: " + why.text;
  return why;
}

/// Removes an allocation from the idle GPUs.
inline void take(idle_index& idle, const allocation& where) {
  for (const auto& share : where) idle.set_idle(share.node, idle.idle(share.node) - share.gpus);
}

}  // namespace troupe::planners
