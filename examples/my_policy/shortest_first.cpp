#include "shortest_first.hpp"

#include <algorithm>
#include <optional>

#include "planners/cluster/queue_order.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/has.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

/// Seconds that the job still takes on its best plan.
double remaining_s(const job_view& job) {
  const auto left = job.spec->iterations - job.progress.iterations_done;
  return double(left) * job.spec->global_batch / job.plans->front().samples_per_s;
}

/// Where the job may start now: the first of its plans that the idle GPUs serve, by best fit.
expected<has_choice> place(const snapshot& s, const idle_index& idle, const job_view& job) {
  std::optional<idle_index> allowed;  // a job may want GPUs of one type only
  return has(s.cluster, allowed_idle(s.cluster, idle, *job.spec, allowed), *job.plans,
             job.history.bytes_floor);
}

}  // namespace

std::vector<decision> shortest_first::decide(const snapshot& s, random_source&) const {
  std::vector<decision> out;
  auto idle = s.idle;  // a copy: the idle GPUs after the decisions in `out`

  std::vector<const job_view*> jobs;
  for (const auto* job : in_order(s.waiting)) {
    if (job->plans && !job->plans->empty())
      jobs.push_back(job);
    else
      out.push_back({decision::kind::give_up, job->id, {}, {}, why_none(*job)});
  }
  std::ranges::stable_sort(jobs, {}, [](const job_view* job) { return remaining_s(*job); });
  for (const auto* job : jobs) {
    const auto found = place(s, idle, *job);
    if (found) {
      take(idle, found->where);
      out.push_back({decision::kind::start, job->id, (*job->plans)[found->plan], found->where, {}});
    } else if (found.error().code == reason::kind::infeasible) {
      out.push_back({decision::kind::give_up, job->id, {}, {}, found.error()});
    }
  }
  return out;
}

reason shortest_first::why_waiting(const snapshot& s, job_id job) const {
  const auto it = s.waiting.find(job);
  if (it == s.waiting.end()) return {reason::kind::unknown, "it does not wait"};
  const auto found = place(s, s.idle, it->second);
  if (!found) return found.error();
  return {reason::kind::insufficient, "shorter jobs come first"};
}
