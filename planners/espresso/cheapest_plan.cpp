#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "messages/base/invariant.hpp"
#include "messages/base/time.hpp"
#include "planners/cluster/planning_budget.hpp"
#include "planners/espresso/cost_tree.hpp"
#include "planners/espresso/market.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/search/job_space/find_pipelines.hpp"

// The cheapest plan over all datacenters, or why there is none (docs/planners/espresso.md). Prices
// differ between datacenters and a plan never spans two, so each is searched on its own; the best
// cost so far is the budget of the next search, which then prunes most of its trees at once.
// Without a plan the searches are repeated without some of the limits, with a smaller budget, to
// name those that would have to change.

namespace troupe::planners {
namespace {

void add(tree_counts& all, const tree_counts& more) {
  all.opened += more.opened;
  all.placed += more.placed;
  all.simulated += more.simulated;
  all.pruned_boundary += more.pruned_boundary;
  all.pruned_cost += more.pruned_cost;
  all.pruned_time += more.pruned_time;
  all.pruned_capacity += more.pruned_capacity;
}

/// The idle GPUs of one datacenter.
idle_index in_datacenter(const cluster& c, const idle_index& idle, std::uint32_t datacenter) {
  auto here = idle;
  for (node_index n = 0; n < c.nodes.size(); ++n)
    if (c.nodes[n].datacenter != datacenter) here.set_idle(n, 0);
  return here;
}

/// The plan of the cheapest datacenter; counts and bounds cover all of them.
provision search_trees(const cluster& c, const idle_index& all, const job_spec& job,
                       planning_budget& budget, const provision_options& options) {
  std::optional<idle_index> restricted;
  const auto& idle = allowed_idle(c, all, job, restricted);
  provision best;
  best.complete = true;
  best.bound = never;
  auto bounded = job;
  for (std::uint32_t dc = 0; dc < c.datacenters.size(); ++dc) {
    const auto here = in_datacenter(c, idle, dc);
    if (here.total_idle() == 0) continue;
    const auto m = market_of(c, dc, options.spot);
    auto p = search_market(m, here, bounded, budget, options);
    add(p.search, best.search);
    const bool complete = best.complete && p.complete;
    const double bound = std::min(best.bound, p.plan || !p.complete ? p.bound : never);
    const double left_out =
        std::min(best.not_examined.value_or(never), p.not_examined.value_or(never));
    if (!p.plan || (best.plan && best.cost <= p.cost)) {
      p.search.bound_at_pop = best.search.bound_at_pop;
      best.search = p.search;
    } else {
      best = std::move(p);
      if (options.pruning) bounded.limits.budget = best.cost;
    }
    best.complete = complete;
    best.bound = bound;
    if (left_out < never) best.not_examined = left_out;
  }
  if (best.plan) best.not_examined = {};
  return best;
}

/// Why `job` has no plan: the budget, if there is one without it; else the time limit, if the
/// fastest plan breaks it, or that its micro-batches would have to have another size.
reason why_none(const cluster& c, const idle_index& all, const job_spec& job, bool spot) {
  constexpr std::uint64_t units = 20'000'000;  // a fifth of a plan's budget
  planning_budget budget{units};
  auto timed = job;
  timed.limits.budget.reset();
  if (job.limits.budget)
    if (const auto p = search_trees(c, all, timed, budget, {.spot = spot}); p.plan)
      return within_limits(job, p.total_s, p.cost).error();
  auto free = timed;
  free.limits.slo_s = free.limits.deadline_s = {};
  free.objective = "fastest";
  const auto found = find_pipelines(c, all, free, space_named("espresso").value(), 1, budget);
  if (!found) return found.error();
  TROUPE_INVARIANT(!found->plans.empty(), "a search that succeeds has a plan");
  const auto& how = found->plans.front().how;
  const double run_s = job.global_batch / how.samples_per_s * static_cast<double>(job.iterations);
  const auto ok = within_limits(timed, run_s, 0);
  if (!ok) return ok.error();
  return {reason::kind::infeasible,
          fmt::format("no plan with the usual micro-batches; with pipeline: {{rows: {}}} one takes "
                      "{:.4g} s",
                      how.rows, run_s)};
}

/// Names the quotas that a plan without quotas exceeds, as "; a quota of 20 A30 would do"; empty:
/// there are none, or no such plan.
std::string larger_quotas(const cluster& c, const idle_index& all, const job_spec& job, bool spot) {
  auto free = c;
  bool any = false;
  for (auto& g : free.gpus) any = std::exchange(g.quota, 0) > 0 || any;
  if (!any) return {};
  planning_budget budget{20'000'000};
  const auto p = search_trees(free, all, job, budget, {.spot = spot});
  if (!p.plan) return {};
  std::vector<std::uint32_t> used(c.gpus.size());
  for (const auto& share : p.plan->where) used[c.nodes[share.node].gpu] += share.gpus;
  std::string quotas;
  for (std::size_t g = 0; g < used.size(); ++g)
    if (c.gpus[g].quota > 0 && used[g] > c.gpus[g].quota)
      quotas += fmt::format("{}{} {}", quotas.empty() ? "" : " and ", used[g], c.gpus[g].name);
  return quotas.empty() ? quotas : "; a quota of " + quotas + " would do";
}

/// For a search that ended although some sets have more orders and cuts than it examines.
reason not_examined(const provision& found) {
  return {reason::kind::infeasible,
          fmt::format("no plan was found; the search did not cover every stage order and cut, so a "
                      "plan that costs {:.2f} $ or more may exist",
                      *found.not_examined)};
}

}  // namespace

provision cheapest_plan(const cluster& c, const idle_index& idle, const job_spec& job,
                        planning_budget& budget, const provision_options& options) {
  ++searches_made;
  auto found = search_trees(c, idle, job, budget, options);
  if (found.plan) return found;
  if (found.complete && options.placer != provision_placer::exact) {
    const bool sia = options.placer == provision_placer::sia;
    found.why = {reason::kind::infeasible,
                 sia ? "no 2^n GPUs of one type within its quota meet the job's limits"
                     : "none of this placer's plans is within the job's limits"};
    return found;
  }
  if (!found.complete) {
    const bool in_time = found.not_examined && !budget.late();
    found.why = in_time ? not_examined(found) : budget.none_found();
    return found;
  }
  found.why = why_none(c, idle, job, options.spot);
  found.why.text += larger_quotas(c, idle, job, options.spot);
  return found;
}

}  // namespace troupe::planners
