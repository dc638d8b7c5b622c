#include "planners/espresso/cost_tree.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <queue>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "messages/time.hpp"
#include "planners/core/bounds.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/espresso/completion_bound.hpp"
#include "planners/pipeline/plan_search.hpp"
#include "planners/pipeline/stage_placer.hpp"

namespace troupe::planners {
namespace {

/// A path from the root of the tree of a division and a number of stages: so many stages of each of
/// the first types.
struct tree_node {
  double min_cost = 0;  // of any completion
  std::uint64_t number = 0;
  std::size_t division = 0;
  std::uint32_t stages = 0;  // of a pipeline, when it is complete
  std::size_t types = 0;     // decided
  stage_counts counts;
  // Of a complete one whose stages have been ordered and cut, and who did; its cost is then that of
  // the closed form, below which no schedule is.
  std::shared_ptr<const set_plan> placed = nullptr;
  provision_placer placer = provision_placer::exact;

  /// The queue's order: the least cost first, then the oldest.
  bool operator<(const tree_node& other) const {
    return std::tie(other.min_cost, other.number) < std::tie(min_cost, number);
  }
};

/// A cluster with the prices of one of its datacentres in its GPU types.
struct market {
  cluster priced;
  std::vector<double> interruptions_per_hour;  // of a node, by GPU type; empty: none
};

market market_of(const cluster& c, std::uint32_t datacenter, bool spot) {
  market m{c, {}};
  m.priced.prices.clear();
  for (gpu_index g = 0; g < c.gpus.size(); ++g) {
    const auto* p = price_at(c, g, datacenter);
    if (!p) continue;
    const bool interruptible = spot && p->spot_per_hour > 0;
    m.priced.gpus[g].price_per_hour = interruptible ? p->spot_per_hour : p->per_hour;
    if (!interruptible) continue;
    m.interruptions_per_hour.resize(c.gpus.size());
    m.interruptions_per_hour[g] = p->interruptions_per_hour;
  }
  return m;
}

class cost_trees {
 public:
  cost_trees(const market& m, const idle_index& idle, const job_spec& job, planning_budget& budget,
             const provision_options& options)
      : market_{m},
        cluster_{m.priced},
        idle_{idle},
        job_{job},
        budget_{budget},
        options_{options},
        placer_{m.priced, idle, job, options.simulate ? fidelity::least : fidelity::closed} {
    simulated_job_ = placer_.job();
    simulated_job_.train->device = "sim";
    if (options.placer == provision_placer::exact && options.pruning && !options.exhaustive &&
        (job.slo_s || job.deadline_s))
      next_ask_ = patience;
  }

  provision search() {
    if (options_.exhaustive)
      list_all();
    else
      plant_all();
    if (out_.plan && out_.complete) out_.bound = std::min(out_.cost, loose_bound_);
    if (!out_.plan && loose_bound_ < never) {
      out_.complete = false;
      out_.not_examined = loose_bound_;
    }
    return std::move(out_);
  }

 private:
  static constexpr std::uint64_t patience = 2'000'000;  // units without a plan
  static constexpr auto never_units = std::numeric_limits<std::uint64_t>::max();

  double iterations() const { return static_cast<double>(job_.iterations); }
  double cost_of(double iteration_s, double price_per_hour) const {
    return iteration_s * iterations() * price_per_hour / 3600;
  }

  /// The roots: every division with every number of stages, but those without enough GPUs or
  /// memory (the paper's boundary pruning).
  void plant_all() {
    for (std::size_t d = 0; d < placer_.divisions().size(); ++d) {
      const auto& types = placer_.divisions()[d].types;
      std::uint32_t most = 0;
      for (const auto& t : types) most += t.stages;
      for (std::uint32_t k = 1; k <= std::min(most, placer_.max_stages()); ++k) {
        const bool wide = job_.max_gpus && placer_.divisions()[d].gpus(k) > *job_.max_gpus;
        const stage_counts none(types.size());
        if (wide || !placer_.bound(d, k) || (options_.pruning && !placer_.may_hold(d, none, 0, k)))
          ++out_.search.pruned_boundary;
        else
          offer({0, 0, d, k, 0, none}, k);
      }
    }
    grow();
  }

  void grow() {
    while (!queue_.empty()) {
      if (options_.pruning && out_.plan && queue_.top().min_cost >= out_.cost) {
        out_.search.pruned_cost += queue_.size();
        break;
      }
      if (!budget_.spend(units())) {
        out_.bound = std::min({queue_.top().min_cost, loose_bound_, out_.plan ? out_.cost : never});
        return;
      }
      if (max_units_ < never_units && (out_.plan || spent_ > max_units_)) return;
      if (!out_.plan && spent_ > next_ask_) ask_whale();
      const auto node = queue_.top();
      queue_.pop();
      if (node.placed) {
        simulate(node);
        continue;
      }
      ++out_.search.opened;
      const auto used = std::accumulate(node.counts.begin(), node.counts.end(), 0U);
      if (used == node.stages)
        place(node);
      else
        extend(node, node.stages - used);
    }
    out_.complete = true;
  }

  /// Where a limit is tight, the queue comes to the GPUs that meet it late. A placer that is quick
  /// comes there before, if it gets most of the time.
  void ask_whale() {
    auto options = options_;
    options.placer = provision_placer::whale;
    const bool begun = whale_ != nullptr;
    if (!begun) whale_ = std::make_unique<cost_trees>(market_, idle_, job_, budget_, options);
    whale_->max_units_ = 3 * spent_;
    begun ? whale_->grow() : whale_->plant_all();
    next_ask_ = whale_->queue_.empty() ? never_units : 2 * spent_;
    auto& found = whale_->out_;
    if (!found.plan) return;
    const auto bound_at_pop = found.search.bound_at_pop;
    found.search = out_.search;
    found.search.bound_at_pop = bound_at_pop;
    found.complete = false;
    out_ = std::move(found);
  }

  void extend(const tree_node& node, std::uint32_t missing) {
    const auto& types = placer_.divisions()[node.division].types;
    std::uint32_t others = 0;  // of the types after this one
    for (auto t = node.types + 1; t < types.size(); ++t) others += types[t].stages;
    const auto least = missing - std::min(missing, others);
    for (auto n = least; n <= std::min(missing, types[node.types].stages); ++n) {
      auto child = node;
      child.types = node.types + 1;
      child.counts[node.types] = n;
      offer(std::move(child), missing - n);
    }
  }

  /// Queues a node, unless no completion of it can be the answer.
  void offer(tree_node node, std::uint32_t missing) {
    work_ += 100 * node.counts.size();
    const auto& d = placer_.divisions()[node.division];
    // Rounding must not drop what is as cheap as the best.
    constexpr double slack = 1 - 1e-12;
    const double max_s = std::min(job_.slo_s.value_or(never), job_.deadline_s.value_or(never));
    const double most = std::min(job_.budget.value_or(never), out_.plan ? out_.cost : never);
    const auto least =
        min_completion(d, *placer_.bound(node.division, node.stages), node.counts, node.types,
                       missing, options_.pruning ? max_s / iterations() / slack : never,
                       options_.pruning ? most * 3600 / iterations() / slack : never);
    node.min_cost = least.seconds_times_price * iterations() / 3600 * slack;
    node.number = ++numbered_;
    if (options_.pruning) {
      const double run_s = least.seconds * iterations() * slack;
      if (run_s > max_s || least.seconds_times_price == never) {
        ++out_.search.pruned_time;
        return;
      }
      if (!placer_.may_hold(node.division, node.counts, node.types, missing)) {
        ++out_.search.pruned_capacity;
        return;
      }
      if (node.min_cost > job_.budget.value_or(never) ||
          (out_.plan && node.min_cost >= out_.cost)) {
        ++out_.search.pruned_cost;
        return;
      }
    }
    queue_.push(std::move(node));
  }

  void list_all() {
    for (std::size_t d = 0; d < placer_.divisions().size(); ++d) {
      const auto& types = placer_.divisions()[d].types;
      stage_counts counts(types.size());
      for (;;) {
        std::size_t t = 0;
        for (; t < counts.size() && counts[t] == types[t].stages; ++t) counts[t] = 0;
        if (t == counts.size()) break;
        ++counts[t];
        const auto stages = std::accumulate(counts.begin(), counts.end(), 0U);
        const auto gpus = placer_.divisions()[d].gpus(stages);
        if (stages > placer_.max_stages() || !placer_.bound(d, stages)) continue;
        if (job_.max_gpus && gpus > *job_.max_gpus) continue;
        if (!budget_.spend(units())) return;
        ++out_.search.opened;
        place({0, 0, d, stages, counts.size(), counts});
        while (!queue_.empty()) {
          const auto placed = queue_.top();
          queue_.pop();
          simulate(placed);
        }
      }
    }
    out_.complete = true;
  }

  double price_per_hour(const tree_node& node) const {
    const auto& types = placer_.divisions()[node.division].types;
    double price = 0;
    for (std::size_t t = 0; t < node.counts.size(); ++t)
      price += node.counts[t] * types[t].price_per_hour;
    return price;
  }

  void place(const tree_node& node) {
    ++out_.search.placed;
    place_by(options_.placer, node);
  }

  void place_by(provision_placer placer, tree_node node) {
    const double price = price_per_hour(node);
    auto p = place_with(placer, placer_, cluster_, node.division, node.counts, limit_s(price));
    if (p.bound_s < p.iteration_s) loose_bound_ = std::min(loose_bound_, cost_of(p.bound_s, price));
    if (!p.plan || (node.placed && p.plan->how == node.placed->plan->how)) return;
    const double closed_s = p.iteration_s;
    if (!options_.simulate) return keep_cheaper(node, p, closed_s, price);
    node.min_cost = std::max(node.min_cost, cost_of(closed_s, price));
    if (out_.plan && node.min_cost >= out_.cost) return;
    node.number = ++numbered_;
    node.placer = placer;
    node.placed = std::make_shared<const set_plan>(std::move(p));
    // What looks better than all before it is likely to be an upper bound for the rest.
    if (node.min_cost >= best_closed_) return queue_.push(std::move(node));
    best_closed_ = node.min_cost;
    simulate(node);
  }

  /// Carries the plan's schedule out. Where each set gets the best order and cut, other placers'
  /// may turn out to be better, and are tried once the set is worth it.
  void simulate(const tree_node& node) {
    const auto& p = *node.placed;
    const auto timed = time_plan(cluster_, simulated_job_, p.plan->how, p.plan->where);
    const auto e = timed ? evaluate(cluster_, simulated_job_, *timed, fidelity::simulated)
                         : expected<iteration_estimate>{refuse(timed.error())};
    if (!e) return;
    ++out_.search.simulated;
    // Another cut of these stages may be better.
    if (node.placer == provision_placer::exact)
      loose_bound_ = std::min(loose_bound_, cost_of(p.bound_s, price_per_hour(node)));
    work_ += 500 * std::uint64_t{timed->shape.microbatches} * timed->costs.size();
    keep_cheaper(node, p, std::max(p.iteration_s, e->iteration_s), price_per_hour(node));
    if (options_.placer != provision_placer::exact || node.placer != provision_placer::exact)
      return;
    if (placer_.fidelity_of(node.division) != fidelity::closed)
      place_by(provision_placer::closed_form, node);
    for (const auto other :
         {provision_placer::greedy, provision_placer::whale, provision_placer::hph})
      place_by(other, node);
  }

  void keep_cheaper(const tree_node& node, const set_plan& p, double iteration_s, double price) {
    const double work_s = iteration_s * iterations();
    const double interruptions = interruptions_per_s(p.plan->where) * work_s;
    const double all_s = work_s + interruptions * lost_s();
    const double cost = all_s * price / 3600;
    if (!within_limits(job_, all_s, cost) || (out_.plan && cost >= out_.cost)) return;
    out_.plan = p.plan;
    out_.plan->how.samples_per_s = job_.global_batch / iteration_s;
    out_.iteration_s = iteration_s;
    out_.closed_form_s = p.iteration_s;
    out_.total_s = all_s;
    out_.cost = cost;
    out_.interruptions = interruptions;
    out_.search.bound_at_pop = node.min_cost;
  }

  double interruptions_per_s(const allocation& where) const {
    double per_hour = 0;
    if (!market_.interruptions_per_hour.empty())
      for (const auto& share : where)
        per_hour += market_.interruptions_per_hour[cluster_.nodes[share.node].gpu];
    return per_hour / 3600;
  }
  /// By an interruption.
  double lost_s() const { return cluster_.settings.restart_s + cluster_.settings.checkpoint_s / 2; }

  /// The longest iteration with which GPUs of this price can be the answer.
  double limit_s(double price_per_hour) const {
    if (!options_.pruning || options_.exhaustive) return never;
    double all_s = std::min(job_.slo_s.value_or(never), job_.deadline_s.value_or(never));
    const double most = std::min(job_.budget.value_or(never), out_.plan ? out_.cost : never);
    if (price_per_hour > 0) all_s = std::min(all_s, most * 3600 / price_per_hour);
    return all_s / iterations() * (1 + 1e-12);
  }

  /// Spent since the last time.
  std::uint64_t units() {
    const auto all = work_ + placer_.units();
    return all - std::exchange(spent_, all);
  }

  const market& market_;
  const cluster& cluster_;
  const idle_index& idle_;
  job_spec job_, simulated_job_;
  planning_budget& budget_;
  provision_options options_;
  stage_placer placer_;
  std::priority_queue<tree_node> queue_;
  std::uint64_t numbered_ = 0, work_ = 0, spent_ = 0;
  std::unique_ptr<cost_trees> whale_;      // of other sets in its own order, if it is asked
  std::uint64_t next_ask_ = never_units;   // spent by then
  std::uint64_t max_units_ = never_units;  // else it ends when it has spent them, or has a plan
  double best_closed_ = never;             // the least cost of a plan's closed form
  double loose_bound_ = never;             // of sets whose plan may not be their best
  provision out_;
};

void add(tree_counts& all, const tree_counts& more) {
  all.opened += more.opened;
  all.placed += more.placed;
  all.simulated += more.simulated;
  all.pruned_boundary += more.pruned_boundary;
  all.pruned_cost += more.pruned_cost;
  all.pruned_time += more.pruned_time;
  all.pruned_capacity += more.pruned_capacity;
}

idle_index in_datacenter(const cluster& c, const idle_index& idle, std::uint32_t datacenter) {
  auto here = idle;
  for (node_index n = 0; n < c.nodes.size(); ++n)
    if (c.nodes[n].datacenter != datacenter) here.set_idle(n, 0);
  return here;
}

/// In the datacentre where it costs the least.
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
    auto p = cost_trees{m, here, bounded, budget, options}.search();
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
      if (options.pruning) bounded.budget = best.cost;
    }
    best.complete = complete;
    best.bound = bound;
    if (left_out < never) best.not_examined = left_out;
  }
  if (best.plan) best.not_examined = {};
  return best;
}

/// What would do: other limits, or larger quotas. `job` has no plan.
reason why_none(const cluster& c, const idle_index& all, const job_spec& job, bool spot) {
  constexpr std::uint64_t units = 20'000'000;  // an explanation is worth less than an answer
  planning_budget budget{units};
  auto timed = job;
  timed.budget.reset();
  if (job.budget)
    if (const auto p = search_trees(c, all, timed, budget, {.spot = spot}); p.plan)
      return within_limits(job, p.total_s, p.cost).error();
  auto free = timed;
  free.slo_s = free.deadline_s = {};
  free.objective = "fastest";
  const auto found = search_plans(c, all, free, 1, budget);
  if (!found) return found.error();
  const double run_s = job.global_batch / found->plans.front().how.samples_per_s *
                       static_cast<double>(job.iterations);
  const auto ok = within_limits(timed, run_s, 0);
  return ok ? reason{reason::kind::infeasible, "no datacenter alone has the GPUs of a plan"}
            : ok.error();
}

/// "; a quota of 20 A30 would do", if it would.
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

/// The search has ended, but some sets of GPUs have more cuts and orders than it looks at.
reason not_examined(const provision& found) {
  return {reason::kind::infeasible,
          fmt::format("no plan was found; the search did not cover every stage order and cut, so a "
                      "plan that costs {:.2f} $ or more may exist",
                      *found.not_examined)};
}

}  // namespace

provision cheapest_plan(const cluster& c, const idle_index& idle, const job_spec& job,
                        planning_budget& budget, const provision_options& options) {
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
