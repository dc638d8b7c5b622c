#include "planners/espresso/cheapest_plan.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "messages/base/invariant.hpp"
#include "messages/base/time.hpp"
#include "planners/cluster/planning_budget.hpp"
#include "planners/espresso/purchase.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/places.hpp"
#include "planners/search/job_space/find_pipelines.hpp"
#include "planners/search/job_space/job_search.hpp"
#include "planners/search/set_climb.hpp"

// The cheapest plan, or why there is none (docs/planners/espresso.md). The search for pipelines
// knows closed forms: the schedules of its best plans are simulated. A plan never spans
// datacenters. Without a plan the searches are repeated without some of the limits, with a smaller
// budget, to name those that would have to change.

namespace troupe::planners {
namespace {

using candidates = std::vector<purchase::candidate>;

const plan_space& espresso_space() {
  static const plan_space space = space_named("espresso").value();
  return space;
}

/// The job as work whose stages are to be planned.
job_spec to_provision(job_spec job) {
  job.train.reset();
  job.objective = "cheapest";
  return job;
}

/// The search for pipelines, and its bound.
class pipelines_to_buy {
 public:
  pipelines_to_buy(const cluster& c, const idle_index& idle, const job_spec& job, purchase& buy,
                   const provision_options& options)
      : c_{c}, idle_{idle}, job_{to_provision(job)}, buy_{buy}, options_{options} {}

  void search(planning_budget& budget) {
    auto job = job_;
    // Limits that a schedule breaks although its closed form does not are made tighter.
    for (int tries = 0; tries < 3; ++tries) {
      const double slower = offer_best(job, budget, tries == 0);
      for (auto* limit : {&job.limits.slo_s, &job.limits.deadline_s})
        if (*limit) **limit /= slower;
      if (slower == 1 || budget.exhausted()) break;
    }
    if (!buy_.best().plan && (job.limits.slo_s || job.limits.deadline_s)) {
      job = job_;
      job.objective = "fastest";
      offer_best(job, budget, false);
    }
    buy_.shift_pieces(budget);
    buy_.best().complete = !budget.exhausted();
  }

 private:
  static constexpr std::size_t candidates_wanted = 64;
  static constexpr std::uint64_t bound_units = 60'000'000;

  /// `bounded`: the job has its own limits. A search with tighter ones says nothing about the plans
  /// between these and its own, so that its bound is none of the job's.
  double offer_best(const job_spec& job, planning_budget& budget, bool bounded) {
    const job_places places{c_, job, true};
    plan_timing timing;
    // Longer chains of events than the closed form has: few schedules take longer.
    if (options_.simulate) timing.by = fidelity::lower_bound;
    if (options_.spot)
      timing.longer = [this](const allocation& where) { return buy_.longer(where); };
    const auto searched = job_search::of(c_, idle_, job, places, espresso_space(), timing);
    if (!searched) return 1;
    auto own = budget.part(budget.left() / 4 * 3);
    const auto found = searched->search(candidates_wanted, own);
    budget.charge(own);
    auto& counts = buy_.best().search;
    counts.cuts += found.cuts, counts.valued += found.valued;
    candidates all;
    for (const auto& [times, v] : found.plans) {
      auto p = times->placed(v.plan);
      TROUPE_INVARIANT(p, "a plan that was valued has GPUs");
      const double estimated_s = v.value.seconds / buy_.longer(p->where);
      all.push_back({std::move(*p), estimated_s});
    }
    const double slower = buy_.offer(std::move(all), budget);
    if (!bounded || found.plans.empty()) return slower;
    const double run = buy_.shortest() * static_cast<double>(job.iterations);
    const double lowest = found.plans.front().found.score;
    if (found.exact) {
      buy_.best().bound = lowest * run;
    } else if (options_.bounded) {
      auto rest = budget.part(bound_units);
      buy_.best().bound = searched->bound(lowest, rest) * run;
      budget.charge(rest);
    }
    return slower;
  }

  const cluster& c_;
  const idle_index& idle_;
  job_spec job_;
  purchase& buy_;
  provision_options options_;
};

/// Samples of a micro-batch that the job's plans may have.
std::vector<std::uint32_t> rows_of(const cluster& c, const idle_index& idle, const job_spec& job) {
  const auto times = cost_model_times::of(c, idle, to_provision(job), espresso_space());
  return times ? (*times)->problem().rows : std::vector<std::uint32_t>{};
}

/// The idle GPUs of one datacenter.
idle_index in_datacenter(const cluster& c, const idle_index& idle, std::uint32_t datacenter) {
  auto here = idle;
  for (node_index n = 0; n < c.nodes.size(); ++n)
    if (c.nodes[n].datacenter != datacenter) here.set_idle(n, 0);
  return here;
}

/// A placer's plans: of sets of one type, and of those around the best of these.
void buy_placed(const cluster& c, const idle_index& all, const job_spec& job, purchase& buy,
                const provision_options& options, planning_budget& budget) {
  constexpr std::size_t begins = 8;  // sets to climb from, of one datacenter and one number of rows
  std::optional<idle_index> restricted;
  const auto& idle = allowed_idle(c, all, job, restricted);
  set_wish wish;
  wish.max_s = std::min(job.limits.slo_s.value_or(never), job.limits.deadline_s.value_or(never)) /
               static_cast<double>(job.iterations);
  wish.max_gpus = job.limits.max_gpus;
  const auto place = [&](stage_placer& placer, std::size_t division, const stage_counts& counts,
                         double limit_s) {
    return place_with(options.placer, placer, c, division, counts, limit_s, {.rough = true});
  };
  for (std::uint32_t dc = 0; dc < c.datacenters.size(); ++dc) {
    const auto here = in_datacenter(c, idle, dc);
    if (here.total_idle() == 0) continue;
    for (const auto rows : rows_of(c, here, job)) {
      auto of_rows = to_provision(job);
      of_rows.pipeline.rows = rows;
      of_rows.pipeline.microbatches = 0;
      of_rows.microbatches.reset();
      set_climb climb{c,    here,  of_rows,
                      wish, place, options.simulate ? fidelity::lower_bound : fidelity::closed};
      auto found = climb.of_one_type(budget);
      std::ranges::stable_sort(found, {}, &set_climb::found_set::cost);
      for (std::size_t i = 0, n = std::min(begins, found.size()); i < n; ++i)
        for (auto& x : climb.around(found[i].placed.plan->how, found[i].cost, budget))
          found.push_back(std::move(x));
      candidates plans;
      for (auto& x : found) plans.push_back({std::move(*x.placed.plan), x.placed.iteration_s});
      buy.best().search.valued += plans.size();
      buy.offer(std::move(plans), budget);
    }
  }
  buy.best().complete = !budget.exhausted();
}

/// The placers' plans, too. A limit of time is on simulated schedules, of which the search for
/// pipelines knows the bound alone: with a tight limit a placer's plan may be the one that keeps
/// it.
void buy_from_placers(const cluster& c, const idle_index& idle, const job_spec& job, purchase& buy,
                      provision_options options, planning_budget& budget) {
  const bool complete = buy.best().complete;
  for (const auto placer :
       {provision_placer::whale, provision_placer::greedy, provision_placer::hph}) {
    options.placer = placer;
    auto part = budget.part(budget.left() / 4);
    buy_placed(c, idle, job, buy, options, part);
    budget.charge(part);
  }
  buy.best().complete = complete;
}

provision search_all(const cluster& c, const idle_index& idle, const job_spec& job,
                     planning_budget& budget, const provision_options& options) {
  purchase buy{c, idle, job, options};
  if (options.placer == provision_placer::exact) {
    auto searched = budget.part(budget.left() / 2);
    pipelines_to_buy{c, idle, job, buy, options}.search(searched);
    budget.charge(searched);
    buy_from_placers(c, idle, job, buy, options, budget);
  } else {
    buy_placed(c, idle, job, buy, options, budget);
  }
  return std::move(buy.best());
}

/// Why `job` has no plan: the budget, if there is one without it; else the time limit, if the
/// fastest plan breaks it, or that no schedule keeps it.
reason why_none(const cluster& c, const idle_index& all, const job_spec& job,
                const provision_options& options) {
  constexpr std::uint64_t units = 20'000'000;  // a fifth of a plan's budget
  planning_budget budget{units};
  auto timed = job;
  timed.limits.budget.reset();
  if (job.limits.budget)
    if (const auto p = search_all(c, all, timed, budget, options); p.plan)
      if (auto ok = within_limits(job, p.total_s, p.cost); !ok) return ok.error();
  auto free = to_provision(timed);
  free.limits.slo_s = free.limits.deadline_s = {};
  free.objective = "fastest";
  const auto found = find_pipelines(c, all, free, espresso_space(), 1, budget);
  if (!found) return found.error();
  TROUPE_INVARIANT(!found->plans.empty(), "a search that succeeds has a plan");
  const auto& how = found->plans.front().how;
  const double run_s = job.global_batch / how.samples_per_s * static_cast<double>(job.iterations);
  const auto ok = within_limits(timed, run_s, 0);
  if (!ok) return ok.error();
  return {reason::kind::infeasible,
          fmt::format("no plan that was found keeps the limits when its schedule is simulated; the "
                      "fastest takes {:.4g} s by the closed form",
                      run_s)};
}

/// Names the quotas that a plan without quotas exceeds, as "; a quota of 20 A30 would do"; empty:
/// there are none, or no such plan.
std::string larger_quotas(const cluster& c, const idle_index& all, const job_spec& job,
                          const provision_options& options) {
  auto free = c;
  bool any = false;
  for (auto& g : free.gpus) any = std::exchange(g.quota, 0) > 0 || any;
  if (!any) return {};
  planning_budget budget{20'000'000};
  const auto p = search_all(free, all, job, budget, options);
  if (!p.plan) return {};
  std::vector<std::uint32_t> used(c.gpus.size());
  for (const auto& share : p.plan->where) used[c.nodes[share.node].gpu] += share.gpus;
  std::string quotas;
  for (std::size_t g = 0; g < used.size(); ++g)
    if (c.gpus[g].quota > 0 && used[g] > c.gpus[g].quota)
      quotas += fmt::format("{}{} {}", quotas.empty() ? "" : " and ", used[g], c.gpus[g].name);
  return quotas.empty() ? quotas : "; a quota of " + quotas + " would do";
}

}  // namespace

provision cheapest_plan(const cluster& c, const idle_index& idle, const job_spec& job,
                        planning_budget& budget, const provision_options& options) {
  ++searches_made;
  const auto priced = options.spot ? at_spot_prices(c) : c;
  auto found = search_all(priced, idle, job, budget, options);
  if (found.plan) return found;
  if (!found.complete) {
    found.why = budget.none_found();
  } else if (options.placer != provision_placer::exact) {
    const bool sia = options.placer == provision_placer::sia;
    found.why = {reason::kind::infeasible,
                 sia ? "no 2^n GPUs of one type within its quota meet the job's limits"
                     : "none of this placer's plans is within the job's limits"};
  } else {
    auto unbounded = options;
    unbounded.bounded = false;
    found.why = why_none(priced, idle, job, unbounded);
    found.why.text += larger_quotas(priced, idle, job, unbounded);
  }
  return found;
}

}  // namespace troupe::planners
