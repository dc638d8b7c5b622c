#include "planners/search/job_space/searched_placement.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "messages/base/refuse.hpp"
#include "messages/domain/device_kind.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/cost/run_cost.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/explicit_plan.hpp"
#include "planners/search/job_space/find_pipelines.hpp"
#include "planners/search/job_space/gpu_kinds.hpp"

namespace troupe::planners {

namespace {

constexpr std::uint64_t training_units = 50'000'000;  // the search finds nearly the best early
constexpr std::size_t simulated_plans = 4;

/// Its time on these GPUs; none: no schedule can be made.
std::optional<iteration_estimate> timed_on(const cluster& c, const job_spec& job,
                                           const placed_plan& p) {
  constexpr std::uint32_t max_simulated_gpus = 2048;
  const auto f = p.how.gpus() > max_simulated_gpus ? fidelity::closed : fidelity::simulated;
  auto e = evaluate(c, with_device(job, name_of(device_kind::sim)), p.how, p.where, f);
  if (!e) return {};
  return std::move(*e);
}

/// Work of a stage of a group's pipelines.
struct loaded_seat {
  std::uint64_t load = 0;
  kind_seat seat;
};

/// Gives the stages with the most work the fastest nodes of their type and datacenter. False: there
/// are too few.
bool seat_by_load(const cluster& c, const idle_index& idle, const gpu_kinds& kinds,
                  const std::vector<pipeline_group>& groups, std::vector<loaded_seat>& seats) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> left;  // by kind, datacenter
  for (node_index n = 0; n < c.nodes.size(); ++n)
    if (idle.idle(n) > 0) left[{kinds.of_nodes()[n], c.nodes[n].datacenter}] += idle.idle(n);
  std::vector<const plan_stage*> stages;
  for (const auto& g : groups)
    for (std::uint32_t p = 0; p < g.pipelines; ++p)
      for (const auto& s : g.stages) {
        stages.push_back(&s);
        seats.push_back({std::uint64_t{g.microbatches} * s.count, {0, 0, s.tensor_parallel}});
      }
  std::vector<std::size_t> order(seats.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [&](std::size_t i) { return seats[i].load; });
  for (const auto i : order) {
    auto best = left.end();
    for (auto at = left.begin(); at != left.end(); ++at) {
      const auto& [kind, datacenter] = at->first;
      if (kinds[kind].gpu != stages[i]->gpu || at->second < seats[i].seat.tensor) continue;
      if (datacenter != stages[i]->datacenter.value_or(datacenter)) continue;
      if (best == left.end() || kinds[kind].speed > kinds[best->first.first].speed) best = at;
    }
    if (best == left.end()) return false;
    best->second -= seats[i].seat.tensor;
    seats[i].seat.kind = best->first.first, seats[i].seat.datacenter = best->first.second;
  }
  return true;
}

}  // namespace

bool is_searched(const job_spec& job) {
  const auto work = facts_of(job);
  const auto& wish = job.pipeline;
  // Within a decision's steps the search may find no plan that keeps a budget, where it was
  // accepted with more: the job would wait for ever.
  return work.has_stages && work.has_model && job.objective == "fastest" && !job.limits.budget &&
         job.train->costs.empty() && wish.cut.empty() && wish.stages_per_datacenter == 0 &&
         wish.virtual_stages <= 1 && context_parallel_of(wish) == 1;
}

expected<placed_plan> place_by_search(const cluster& c, const idle_index& idle, const job_spec& job,
                                      const plan_space& space, planning_budget& budget) {
  auto own = budget.part(training_units);
  auto found = find_pipelines(c, idle, job, space, simulated_plans, own);
  budget.charge(own);
  if (!found) return refuse(found.error());
  std::optional<placed_plan> best;
  for (auto& p : found->plans) {
    const auto e = timed_on(c, job, p);
    if (!e) continue;
    set_figures(p.how, *e);
    if (!best || p.how.samples_per_s > best->how.samples_per_s) best = std::move(p);
  }
  if (best) return std::move(*best);
  return refuse(reason::kind::infeasible,
                "no schedule of the pipelines that were found can be made");
}

expected<placed_plan> place_by_load(const cluster& c, const idle_index& all, const job_spec& job) {
  std::optional<idle_index> allowed;
  const auto& idle = allowed_idle(c, all, job, allowed);
  const gpu_kinds kinds{c, idle, job};
  const auto groups = groups_on(c, *job.pipeline.groups);
  std::vector<loaded_seat> seats;
  std::optional<allocation> where;
  if (groups && kinds.has_speeds() && seat_by_load(c, idle, kinds, *groups, seats)) {
    std::vector<kind_seat> of_stages;
    for (const auto& s : seats) of_stages.push_back(s.seat);
    where = allocation_of(c, idle, kinds, of_stages);
  }
  if (!where) return refuse(reason::kind::insufficient, "no nodes of its groups differ in speed");
  const auto rows =
      static_cast<std::uint32_t>(job.global_batch / microbatches_of(*job.pipeline.groups));
  auto p = plan_of_groups(c, idle, job, *groups, rows, &*where);
  if (p)
    if (auto ok = fits(c, all, p->how, p->where); !ok) return refuse(ok.error());
  if (p)
    if (auto ok = within_bounds(c, job, p->where); !ok) return refuse(ok.error());
  return p;
}

bool is_faster(const cluster& c, const job_spec& job, const placed_plan& a, const placed_plan& b) {
  const auto time = timed_on(c, job, a), other = timed_on(c, job, b);
  return time && (!other || time->iteration_s < other->iteration_s * (1 - 1e-9));
}

}  // namespace troupe::planners
