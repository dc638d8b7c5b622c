// Sia's jobs that no pool can hold (docs/planners/baselines.md): the authors' integer program has
// no column for GPUs of several types. Its objective still decides: such a job gets GPUs if the
// total cost of all jobs is then smaller than without it. One more program is solved for each such
// job that runs, and for the first that waits and finds room; there are few, and usually none.

#include <algorithm>
#include <cmath>
#include <utility>

#include "planners/baselines/sia.hpp"
#include "planners/plans/mixed_plan.hpp"

namespace troupe::planners {
namespace {

// The gain of a round: by how much its jobs cost less than without GPUs. A job of several pools has
// one configuration, whose normalized goodput is its number of GPUs.
double gain_of(const sia_round& r, const sia_options& o) {
  double gain = -r.answer.cost;
  for (const auto& g : r.problem.groups) gain += o.unassigned * static_cast<double>(g.jobs.size());
  for (const auto& m : r.granted) gain += o.unassigned - std::pow(m.how.gpus(), o.fairness_power);
  return gain;
}

}  // namespace

bool place_mixed(const snapshot& s, const sia_problem& problem, sia_mixed& job) {
  idle_index idle{s.cluster}, room{s.cluster};
  for (node_index n = 0; n < s.cluster.nodes.size(); ++n) {
    room.set_idle(n, problem.room.of(n));
    idle.set_idle(n, std::min(s.idle.idle(n), problem.room.of(n)));
  }
  auto found = find_mixed_plan(s.cluster, idle, *job.job);
  if (!found) found = find_mixed_plan(s.cluster, room, *job.job);
  if (!found) return false;
  job.how = std::move(found->how);
  job.where = std::move(found->where);
  return true;
}

sia_round solve_sia_round(const snapshot& s, sia_problem problem, const sia_options& options) {
  auto candidates = problem.mixed;
  sia_round best{std::move(problem), {}, {}};
  best.answer = solve_sia(best.problem, options);
  double gain = gain_of(best, options);
  for (auto& m : candidates) {
    const bool waits = m.where.empty();
    if (waits && !place_mixed(s, best.problem, m)) continue;
    sia_round next{{}, {}, best.granted};
    next.granted.push_back(m);
    next.problem = make_sia_problem(s, options, next.granted);
    next.answer = solve_sia(next.problem, options);
    const double with = gain_of(next, options);
    if (with > gain) {
      best = std::move(next);
      gain = with;
    }
    if (waits) break;
  }
  return best;
}

}  // namespace troupe::planners
