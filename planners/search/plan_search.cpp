#include "planners/search/plan_search.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "messages/base/invariant.hpp"
#include "messages/base/time.hpp"
#include "planners/cluster/planning_budget.hpp"
#include "planners/cost/run_cost.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/places.hpp"
#include "planners/search/stage_placer.hpp"

// Branch and bound over sets of stages (docs/planners/plan_search.md). Finding the order and cut of
// a set is a search of its own, and there are up to a million sets, so all of them are listed with
// a lower bound of their score, O(types) each, and placed in that order. Invariant: `bound` is at
// most the score of any plan of the set. So once the next bound is no smaller than the worst plan
// wanted, no set that is left has a better plan, and the search ends. The best plans so far also
// limit how long a set's iteration may be (limit_s), which cuts the search for its order short.
// Memory is O(sets); beyond a million sets, or when the planning budget is exhausted, sets that
// were not listed or placed are left out.

namespace troupe::planners {
namespace {

/// A set of stages, and a lower bound of what it can reach.
struct candidate {
  std::size_t division = 0;
  stage_counts counts;
  double price_per_hour = 0;
  std::uint32_t gpus = 0;
  double bound = 0;  // lower bound of plan_score
};

class search {
 public:
  search(const cluster& c, const idle_index& idle, const job_spec& job, std::size_t wanted,
         planning_budget& budget)
      : cluster_{c},
        idle_{idle},
        job_{job},
        wanted_{wanted},
        budget_{budget},
        placer_{c, idle, job} {}

  expected<plan_search_result> run() {
    for (std::size_t d = 0; d < placer_.divisions().size(); ++d) list_sets(d);
    result_.candidates = queue_.size();
    std::ranges::sort(queue_, [](const candidate& a, const candidate& b) {
      return std::tie(a.bound, a.division, a.counts) < std::tie(b.bound, b.division, b.counts);
    });
    for (const auto& x : queue_) {
      result_.bound = x.bound;
      if (result_.plans.size() >= wanted_ && x.bound >= worst()) break;
      const auto before = placer_.units();
      place(x);
      if (!budget_.spend(placer_.units() - before)) break;
    }
    if (result_.plans.empty()) return refuse(why_none());
    return std::move(result_);
  }

 private:
  /// Counts through all sets of a division, like an odometer with a digit per type; at most as many
  /// stages as the model has pieces.
  void list_sets(std::size_t division) {
    constexpr std::size_t max_sets = 1'000'000;
    const auto& types = placer_.divisions()[division].types;
    stage_counts counts(types.size());
    for (;;) {
      std::size_t i = 0;
      for (; i < counts.size() && counts[i] == types[i].stages; ++i) counts[i] = 0;
      if (i == counts.size() || queue_.size() >= max_sets || !budget_.spend(1)) return;
      ++counts[i];
      const auto stages = std::accumulate(counts.begin(), counts.end(), 0U);
      if (stages <= placer_.max_stages()) offer_set(division, counts, stages);
    }
  }

  /// Queues a set unless its GPUs, memory or bound break a limit of the job.
  void offer_set(std::size_t division, const stage_counts& counts, std::uint32_t stages) {
    const auto& d = placer_.divisions()[division];
    const auto gpus = d.gpus(stages);
    if (job_.limits.max_gpus && gpus > *job_.limits.max_gpus) return;
    const auto* bound = placer_.bound(division, stages);
    if (!bound) return;
    if (!placer_.may_hold(division, counts)) return;
    const double price = d.price_per_hour(counts);
    const double min_s = bound->of(counts);
    if (!allowed(min_s, price)) return;
    queue_.push_back({division, counts, price, gpus, score(min_s, gpus, price)});
  }

  void place(const candidate& x) {
    ++result_.placed;
    auto p = placer_.place(x.division, x.counts, limit_s(x));
    if (!p.plan || !allowed(p.iteration_s, p.plan->how.cost_per_hour,
                            p.plan->how.traffic_per_iteration.value_or(0)))
      return;
    const auto by_score = [&](const placed_plan& a) { return plan_score(job_, a); };
    auto& all = result_.plans;
    all.insert(std::ranges::upper_bound(all, by_score(*p.plan), {}, by_score), std::move(*p.plan));
    if (all.size() > wanted_) all.pop_back();
  }

  /// The longest iteration that a set's plan may have to be among the best.
  double limit_s(const candidate& x) const {
    const double iterations = static_cast<double>(job_.iterations);
    double limit = never;
    if (result_.plans.size() >= wanted_) limit = worst() / score(1, x.gpus, x.price_per_hour);
    if (job_.limits.slo_s) limit = std::min(limit, *job_.limits.slo_s / iterations);
    if (job_.limits.deadline_s) limit = std::min(limit, *job_.limits.deadline_s / iterations);
    if (job_.limits.budget)
      limit = std::min(limit, *job_.limits.budget * 3600 / (x.price_per_hour * iterations));
    return limit * (1 + 1e-12);
  }

  /// `traffic`: the price of an iteration's; of a set that is not placed 0, as for a bound.
  bool allowed(double iteration_s, double price_per_hour, double traffic = 0) const {
    const double iterations = static_cast<double>(job_.iterations);
    return within_limits(job_, iteration_s * iterations,
                         cost_of_run(iterations, iteration_s, price_per_hour, traffic))
        .has_value();
  }
  double worst() const { return plan_score(job_, result_.plans.back()); }
  double score(double iteration_s, std::uint32_t gpus, double price_per_hour) const {
    if (job_.objective == "fastest") return iteration_s;
    return iteration_s * (job_.objective == "cheapest" ? price_per_hour : gpus);
  }

  /// Explains an empty result: searches once more without limits, for the fastest plan and then for
  /// the cheapest one that is fast enough, and names the limit that these break.
  reason why_none() const {
    if (budget_.exhausted()) return budget_.none_found();
    if (job_.limits.slo_s || job_.limits.deadline_s || job_.limits.budget) {
      auto free = job_;
      free.limits.slo_s = free.limits.deadline_s = free.limits.budget = {};
      free.objective = "fastest";
      auto all_s = std::pair{never, never};
      for (const bool timed : {false, true}) {
        const auto best = search{cluster_, idle_, free, 1, budget_}.run();
        if (!best) break;
        TROUPE_INVARIANT(!best->plans.empty(), "a search that succeeds has a plan");
        const auto& how = best->plans.front().how;
        const double run_s =
            job_.global_batch / how.samples_per_s * static_cast<double>(job_.iterations);
        all_s = {timed ? all_s.first : run_s, cost_of_run(job_, how)};
        free.limits.slo_s = job_.limits.slo_s, free.limits.deadline_s = job_.limits.deadline_s;
        free.objective = "cheapest";
        if (auto ok = within_limits(job_, all_s.first, timed ? all_s.second : 0); !ok)
          return ok.error();
      }
    }
    return {reason::kind::infeasible,
            fmt::format("no pipeline on the {} idle GPUs has enough memory for '{}'",
                        idle_.total_idle(), job_.model.name)};
  }

  const cluster& cluster_;
  const idle_index& idle_;
  job_spec job_;
  std::size_t wanted_;
  planning_budget& budget_;
  stage_placer placer_;
  std::vector<candidate> queue_;
  plan_search_result result_;
};

}  // namespace

double plan_score(const job_spec& job, const placed_plan& p) {
  const double iteration_s = job.global_batch / p.how.samples_per_s;
  if (job.objective == "fastest") return iteration_s;
  if (job.objective == "cheapest") return 3600 * cost_of_run(job, p.how, 1);
  return iteration_s * p.how.gpus();
}

expected<plan_search_result> search_plans(const cluster& c, const idle_index& all,
                                          const job_spec& job, std::size_t wanted,
                                          planning_budget& budget) {
  ++searches_made;
  std::optional<idle_index> allowed;
  const job_places places{c, job, true};
  if (places.anywhere())
    return search{c, allowed_idle(c, all, job, allowed), job, wanted, budget}.run();
  expected<plan_search_result> found = refuse(reason::kind::infeasible, "no GPU");
  for (const auto& group : places.groups()) {
    const auto in_group = idle_in(c, all, group);
    const auto& here = allowed_idle(c, in_group, job, allowed);
    if (here.total_idle() == 0) continue;
    auto more = search{c, here, job, wanted, budget}.run();
    if (!more || !found) {
      if (more || !found) found = std::move(more);
      continue;
    }
    std::ranges::move(more->plans, std::back_inserter(found->plans));
    std::ranges::stable_sort(found->plans, {}, [&](const auto& p) { return plan_score(job, p); });
    if (found->plans.size() > wanted) found->plans.resize(wanted);
    found->candidates += more->candidates;
    found->placed += more->placed;
    found->bound = std::min(found->bound, more->bound);
  }
  return found;
}

}  // namespace troupe::planners
