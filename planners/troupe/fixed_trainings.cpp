#include "planners/troupe/fixed_trainings.hpp"

#include <algorithm>

#include "planners/cluster/queue_order.hpp"
#include "planners/policy/placement.hpp"
#include "planners/policy/progress.hpp"

namespace troupe::planners {

namespace {

/// In seconds of a GPU of the cluster's fastest type, by its best plan.
double work_of(const snapshot& s, const job_view& j) {
  if (!has_plans(j)) return 0;
  const auto speeds = relative_speeds(s.cluster);
  const auto& how = j.plans->front();
  double weight = 0;
  for (const auto g : how.gpu_types) weight = std::max(weight, speeds[g]);
  return samples_left(s, j) / how.samples_per_s * weight * how.gpus();
}

bool is_overdue(const snapshot& s, const job_view& j, const troupe_options& o) {
  if (!has_plans(j)) return false;
  const double fastest = std::ranges::max(*j.plans, {}, &plan::samples_per_s).samples_per_s;
  const double whole = static_cast<double>(j.spec->iterations) * j.spec->global_batch;
  const double samples = j.facts().has_known_length ? whole : samples_left(s, j);
  return s.now_s >= overdue_s(j.submitted_s, samples, fastest, o);
}

}  // namespace

// Algorithm 1 knows idle GPUs, not prices. For each training it is therefore shown a cluster in
// which the jobs that come after the training do not exist, and those that come before it hold
// their GPUs. The jobs whose GPUs it takes are contenders, and the assignment that follows places
// them anew.
void start_fixed_trainings(const snapshot& s, const job_views& trainings,
                           const std::vector<contender>& contenders, const troupe_options& o,
                           free_gpus& free, std::vector<decision>& out) {
  planning_budget budget{planning_budget::units_a_decision};
  for (const auto* j : in_order(trainings, true)) {
    const double work = work_of(s, *j);
    const bool overdue = is_overdue(s, *j, o);
    const auto comes_after = [&](const contender& x) {
      const auto a = j->spec->priority, b = x.priority;
      if (a != b) return a > b;
      if (is_settling(x, s.now_s)) return false;
      const bool other_overdue = is_overdue(x, s.now_s, o);
      return overdue != other_overdue ? overdue : work < x.work();
    };
    auto running = s.running;
    std::vector<std::uint32_t> held(s.cluster.nodes.size());
    for (const auto& x : contenders)
      if (comes_after(x))
        running.erase(x.id);
      else
        for (const auto& share : x.job->where) held[share.node] += share.gpus;
    idle_index idle{s.idle};
    for (node_index n = 0; n < held.size(); ++n)
      idle.set_idle(n, free.of(n) - std::min(free.of(n), held[n]));
    const job_views one{{j->id, *j}};
    const auto before = out.size();
    std::optional<idle_index> room;
    snapshot alone{s.now_s, s.cluster, idle, one, running, s.moving};
    alone.notes = s.notes;
    start_trainings(alone, out, room, budget, &widest_space());
    for (auto i = before; i < out.size(); ++i) free.take(out[i].where);
  }
}

}  // namespace troupe::planners
