#include "planners/espresso/cost_tree.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <queue>
#include <utility>
#include <vector>

#include "messages/base/folds.hpp"
#include "messages/base/invariant.hpp"
#include "messages/base/time.hpp"
#include "messages/domain/device_kind.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/espresso/completion_bound.hpp"
#include "planners/espresso/market.hpp"
#include "planners/espresso/shift_pieces.hpp"
#include "planners/espresso/tree_node.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/search/stage_placer.hpp"

// A best-first search over all cost trees at once (tree_node.hpp has the idea). Invariant: a node's
// min_cost is at most the cost of every plan below it, since completion_bound.hpp completes it with
// the best that could follow. So when the smallest min_cost is no less than the cost of the best
// plan, that is the optimum. Each evaluation is as late as possible: a node is a bound, then the
// closed form of its best cut, then, only if it is again the cheapest in the queue, a simulated
// schedule; no schedule is shorter than the closed form (but for the overlap of two iterations), so
// each cost is a lower bound of the next.
//
// The placer's cut is the best by the closed form, not by simulation: sets for which another cut
// may still be cheaper are kept in `left_` and examined at the end, as far as time allows. Their
// bound is the answer's gap. With a tight limit, the queue comes late to any plan that keeps it:
// quick placers look for one beside it (ask_quick), and its cost prunes the rest. With an exhausted
// budget, the best plan so far is the answer, with the bound of what was not examined.

namespace troupe::planners {
namespace {

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
        placer_{m.priced, idle, job, options.simulate ? fidelity::lower_bound : fidelity::closed} {
    simulated_job_ = placer_.job();
    simulated_job_.train->device = name_of(device_kind::sim);
    if (options.placer == provision_placer::exact && options.pruning && !options.exhaustive &&
        (job.limits.slo_s || job.limits.deadline_s))
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
  // Efforts in units of the planning budget, some 10 ns each.
  static constexpr std::uint64_t patience = 2'000'000;  // without a plan, before quick placers
  static constexpr std::uint64_t quick_units = 10'000'000;
  static constexpr std::uint64_t more_steps = 10'000'000;  // for one set that was left
  static constexpr std::uint32_t few_stages = 6;           // schedules that are quick to simulate
  static constexpr double promising = 0.98;  // share of the best cost: below, simulate at once
  static constexpr double near = 1.01;       // times a limit: up to there, shift pieces
  static constexpr auto never_units = std::numeric_limits<std::uint64_t>::max();

  double iterations() const { return static_cast<double>(job_.iterations); }
  /// A market is one datacenter, so that no plan of it has traffic to pay for.
  double cost_of(double iteration_s, double price_per_hour) const {
    return cost_of_run(iterations(), iteration_s, price_per_hour, 0);
  }
  double iteration_of(double cost, double price_per_hour) const {
    return cost / (iterations() * price_per_hour / 3600);
  }

  /// Lines 2 to 6 of Algorithm 1. Queues the roots: every division with every number of stages, but
  /// those without enough GPUs or memory (boundary pruning, method 1).
  void plant_all() {
    for (std::size_t d = 0; d < placer_.divisions().size(); ++d) {
      const auto& types = placer_.divisions()[d].types;
      const auto max = sum_of(types, &stage_type::stages);
      for (std::uint32_t k = 1; k <= std::min(max, placer_.max_stages()); ++k) {
        const bool wide =
            job_.limits.max_gpus && placer_.divisions()[d].gpus(k) > *job_.limits.max_gpus;
        const stage_counts none(types.size());
        if (wide || !placer_.bound(d, k) || (options_.pruning && !placer_.may_hold(d, none, 0, k)))
          ++out_.search.pruned_boundary;
        else
          offer({0, 0, d, k, 0, none}, k);
      }
    }
    grow();
  }

  /// Lines 7 to 21: takes the cheapest node, and simulates, places or extends it, until none is
  /// below the best plan. Returns early when the budget, a quick search's share of it, or its task
  /// is over.
  void grow() {
    while (!queue_.empty()) {
      if (options_.pruning && out_.plan && queue_.top().min_cost >= out_.cost) {
        out_.search.pruned_cost += queue_.size();
        break;
      }
      if (!budget_.spend(units())) {
        if (!left_.empty()) loose_bound_ = std::min(loose_bound_, left_.top().min_cost);
        out_.bound = std::min({queue_.top().min_cost, loose_bound_, out_.plan ? out_.cost : never});
        return;
      }
      if (spent_ > max_units_ || (until_plan_ && out_.plan)) return;
      if (spent_ > next_ask_) ask_quick();
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
    look_at_left();
  }

  /// Examines the sets for which another cut may be better, the cheapest first, as long as that can
  /// make the gap smaller by enough. A quick search stops at 2 % instead of 1 %, and at most
  /// doubles its time: one set may take longer than all of the search before.
  void look_at_left() {
    const bool quick = spent_ < quick_units;
    look_until_ = quick ? spent_ + std::min(spent_, patience) : never_units;
    const double enough = quick ? 0.98 : 0.99;  // of the best cost: above, the gap is small enough
    while (!left_.empty()) {
      const double cost = left_.top().min_cost;
      const bool useless = cost >= enough * out_.cost || loose_bound_ <= cost;
      if ((out_.plan && useless) || !may_look()) break;
      const auto node = left_.top();
      left_.pop();
      look_closer(node);
    }
    if (!left_.empty()) loose_bound_ = std::min(loose_bound_, left_.top().min_cost);
  }

  /// With a tight limit, the queue reaches the GPUs that meet it late, as they are expensive. A
  /// search with a quick placer gets there earlier: with Whale+, for three quarters of the time,
  /// until there is a plan; then with HPH+, for a fifth of it, for cheaper ones. Times double from
  /// turn to turn.
  void ask_quick() {
    const bool first = !out_.plan;
    const bool over = first ? ask(whale_, provision_placer::whale, 3 * spent_)
                            : ask(hph_, provision_placer::hph, spent_ / 4);
    next_ask_ = first && out_.plan ? spent_ : over ? never_units : 2 * spent_;
  }

  /// Continues a quick search until it has spent `units`, or has the first plan. True: it ended.
  bool ask(std::unique_ptr<cost_trees>& quick, provision_placer placer, std::uint64_t units) {
    const bool begun = quick != nullptr;
    if (!begun) {
      auto options = options_;
      options.placer = placer;
      quick = std::make_unique<cost_trees>(market_, idle_, job_, budget_, options);
    }
    quick->max_units_ = units;
    quick->until_plan_ = !out_.plan;
    begun ? quick->grow() : quick->plant_all();
    const auto& found = quick->out_;
    if (found.plan && (!out_.plan || found.cost < out_.cost)) {
      auto search = out_.search;
      search.bound_at_pop = found.search.bound_at_pop;
      out_ = found;
      out_.search = search;
      out_.complete = false;
      best_ = quick->best_;
      look_around();
    }
    return quick->queue_.empty();
  }

  /// Lines 19 to 21: a child for each possible number of stages of the next type.
  void extend(const tree_node& node, std::uint32_t missing) {
    const auto& types = placer_.divisions()[node.division].types;
    std::uint32_t others = 0;  // of the types after this one
    for (auto t = node.types + 1; t < types.size(); ++t) others += types[t].stages;
    const auto min = missing - std::min(missing, others);
    for (auto n = min; n <= std::min(missing, types[node.types].stages); ++n) {
      auto child = node;
      child.types = node.types + 1;
      child.counts[node.types] = n;
      offer(std::move(child), missing - n);
    }
  }

  void offer(tree_node node, std::uint32_t missing) {
    if (may_be_answer(node, missing)) queue_.push(std::move(node));
  }

  /// Lines 14 to 18, pruning methods 2 and 3: whether a completion of the node may be the answer.
  /// Sets its min_cost and counts what pruned it.
  bool may_be_answer(tree_node& node, std::uint32_t missing) {
    work_ += 100 * node.counts.size();
    const auto& d = placer_.divisions()[node.division];
    // Rounding must not drop what is as cheap as the best.
    constexpr double slack = 1 - 1e-12;
    const double max_s =
        std::min(job_.limits.slo_s.value_or(never), job_.limits.deadline_s.value_or(never));
    const double max = std::min(job_.limits.budget.value_or(never), out_.plan ? out_.cost : never);
    const auto min =
        min_completion(d, *placer_.bound(node.division, node.stages), node.counts, node.types,
                       missing, options_.pruning ? max_s / iterations() / slack : never,
                       options_.pruning ? max * 3600 / iterations() / slack : never);
    node.min_cost = min.seconds_times_price * iterations() / 3600 * slack;
    node.number = ++numbered_;
    if (options_.pruning) {
      const double run_s = min.seconds * iterations() * slack;
      if (run_s > max_s || min.seconds_times_price == never) {
        ++out_.search.pruned_time;
        return false;
      }
      if (!placer_.may_hold(node.division, node.counts, node.types, missing)) {
        ++out_.search.pruned_capacity;
        return false;
      }
      if (node.min_cost > job_.limits.budget.value_or(never) ||
          (out_.plan && node.min_cost >= out_.cost)) {
        ++out_.search.pruned_cost;
        return false;
      }
    }
    return true;
  }

  /// Places the sets with one stage more, one less, or one of another type than the best plan's,
  /// again and again as long as one of them has a cheaper plan.
  void look_around() {
    for (double cost = never; out_.cost < cost;) {
      cost = out_.cost;
      const auto from = best_;
      const auto& types = placer_.divisions()[from.division].types;
      for (std::size_t less = 0; less <= types.size(); ++less)
        for (std::size_t more = 0; more <= types.size(); ++more) {
          if (less == more) continue;
          auto node = from;
          if (less < types.size() && node.counts[less]-- == 0) continue;
          if (more < types.size() && ++node.counts[more] > types[more].stages) continue;
          look_at(std::move(node));
        }
    }
  }
  void look_at(tree_node node) {
    node.stages = std::accumulate(node.counts.begin(), node.counts.end(), 0U);
    const bool possible = node.stages > 0 && node.stages <= placer_.max_stages() &&
                          placer_.bound(node.division, node.stages);
    if (possible && may_be_answer(node, 0)) place(node);
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
        if (job_.limits.max_gpus && gpus > *job_.limits.max_gpus) continue;
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
    return placer_.divisions()[node.division].price_per_hour(node.counts);
  }

  void place(const tree_node& node) {
    ++out_.search.placed;
    place_by(options_.placer, node);
  }

  /// Places a complete set, and queues it with its cost by the closed form, or simulates it at once
  /// if it may become the best plan, which prunes the rest.
  void place_by(provision_placer placer, tree_node node) {
    const double price = price_per_hour(node);
    const cut_effort effort{.rough = spent_ > patience};
    auto p =
        place_with(placer, placer_, cluster_, node.division, node.counts, limit_s(price), effort);
    if (p.bound_s < p.iteration_s && placer == options_.placer) leave(node, p.bound_s, 1);
    if (!p.plan || (node.placed && p.plan->how == node.placed->plan->how)) return;
    const double closed_s = p.iteration_s;
    if (!options_.simulate) return keep_cheaper(node, p, closed_s, price);
    node.min_cost = std::max(node.min_cost, cost_of(closed_s, price));
    if (out_.plan && node.min_cost >= out_.cost) return;
    node.number = ++numbered_;
    node.placer = placer;
    node.placed = std::make_shared<const set_plan>(std::move(p));
    // A plan that looks better than all before it is likely to be a good upper bound for the rest.
    const bool small = node.stages <= few_stages && options_.simulate;
    const bool soon = small && (!out_.plan || node.min_cost < promising * out_.cost);
    if (node.min_cost >= best_closed_ && !soon) return queue_.push(std::move(node));
    best_closed_ = std::min(best_closed_, node.min_cost);
    simulate(node);
  }

  /// Simulates a placed plan. The best cut by the closed form need not be the best by simulation:
  /// near a limit single pieces are shifted, and with `exact` the other placers' cuts are queued as
  /// well.
  void simulate(const tree_node& node) {
    const auto& p = *node.placed;
    const double iteration_s = simulated_s(p);
    if (iteration_s == never) return;
    const double price = price_per_hour(node);
    keep_cheaper(node, p, iteration_s, price);
    const bool exact = options_.placer == provision_placer::exact;
    // Another cut of these stages may be better.
    if (node.placer == provision_placer::exact && p.bound_s >= p.iteration_s)
      leave(node, p.bound_s, 3);
    if (node.placer != options_.placer || (!exact && max_units_ == never_units)) return;
    if (node.stages <= few_stages && iteration_s <= near * limit_s(price))
      shift_pieces(stages_of(placer_.divisions()[node.division], p.plan->how), iteration_s,
                   [&](const std::vector<cut_stage>& stages, double shorter_s) {
                     return try_cut(node, stages, shorter_s);
                   });
    if (!exact) return;
    if (placer_.fidelity_of(node.division) != fidelity::closed)
      place_by(provision_placer::closed_form, node);
    for (const auto other :
         {provision_placer::greedy, provision_placer::whale, provision_placer::hph})
      place_by(other, node);
  }

  /// The iteration of the plan's simulated schedule, at least that of the closed form. Infinite:
  /// the schedule cannot be made.
  double simulated_s(const set_plan& p) {
    const auto timed = time_plan(cluster_, simulated_job_, p.plan->how, p.plan->where);
    const auto e = timed ? evaluate(cluster_, simulated_job_, *timed, fidelity::simulated)
                         : expected<iteration_estimate>{refuse(timed.error())};
    if (!e) return never;
    ++out_.search.simulated;
    TROUPE_INVARIANT(!timed->shapes.empty(), "a plan with times has the shape of a schedule");
    work_ += 500 * std::uint64_t{timed->shapes.front().microbatches} * timed->costs.size();
    return std::max(p.iteration_s, e->iteration_s);
  }

  /// Simulates a cut if its closed form is below `max_s` and within the limits; infinite otherwise.
  double try_cut(const tree_node& node, const std::vector<cut_stage>& stages, double max_s) {
    const double price = price_per_hour(node);
    const auto p = placer_.plan_of(node.division, stages);
    if (!p.plan || p.iteration_s >= max_s || p.iteration_s > limit_s(price)) return never;
    const double iteration_s = simulated_s(p);
    keep_cheaper(node, p, iteration_s, price);
    return iteration_s;
  }

  /// Keeps a set for look_at_left: one of its cuts may be better than what is known, but takes at
  /// least `bound_s`. Without that phase, its cost only lowers the bound of the answer.
  void leave(tree_node node, double bound_s, std::uint8_t looked_at) {
    node.placed = nullptr;
    node.looked_at = looked_at;
    const double cost = cost_of(bound_s, price_per_hour(node));
    node.min_cost = looked_at == 1 ? std::max(node.min_cost, cost) : cost;
    if (out_.plan && node.min_cost >= out_.cost) return;
    const bool exact = options_.placer == provision_placer::exact && options_.simulate;
    if (!exact || !options_.pruning || options_.exhaustive || looked_at > 3)
      loose_bound_ = std::min(loose_bound_, node.min_cost);
    else
      left_.push(std::move(node));
  }

  bool may_look() { return budget_.spend(units()) && spent_ < look_until_; }

  /// Examines a set that was left: with more effort for its best cut, twice; then all of its cuts
  /// within the limit are simulated, the smallest bound first.
  void look_closer(const tree_node& node) {
    const double price = price_per_hour(node), limit = limit_s(price);
    const auto steps = std::min(more_steps, look_until_ - spent_);
    if (node.looked_at < 3) {
      cut_effort effort;
      if (node.looked_at == 2) effort.max_steps = steps / 4;
      auto p = placer_.place(node.division, node.counts, limit, {}, {}, effort);
      if (p.bound_s > limit) return;
      if (p.plan) try_cut(node, stages_of(placer_.divisions()[node.division], p.plan->how), never);
      const bool exact = p.bound_s >= p.iteration_s;
      const double bound_s = std::max(p.bound_s, iteration_of(node.min_cost, price));
      return leave(node, bound_s, exact ? 3 : node.looked_at + 1);
    }
    const auto cuts = placer_.cuts_within(node.division, node.counts, limit, steps);
    if (!cuts) return leave(node, iteration_of(node.min_cost, price), 4);
    for (const auto& cut : *cuts) {
      const double cost = cost_of(cut.bound_s, price);
      if (out_.plan && cost >= out_.cost) return;
      if (!may_look()) {
        loose_bound_ = std::min(loose_bound_, cost);
        return;
      }
      try_cut(node, cut.stages, never);
    }
  }

  /// Makes the plan the answer if it is within the limits and cheaper. Interruptions of spot
  /// instances to first order: expected number times what each loses (docs/planners/espresso.md).
  void keep_cheaper(const tree_node& node, const set_plan& p, double iteration_s, double price) {
    const double work_s = iteration_s * iterations();
    const double interruptions = interruptions_per_s(p.plan->where) * work_s;
    const double all_s = work_s + interruptions * lost_s();
    const double cost = cost_of_run(1, all_s, price, 0);
    if (!within_limits(job_, all_s, cost) || (out_.plan && cost >= out_.cost)) return;
    best_ = {0, 0, node.division, node.stages, node.types, node.counts};
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
  /// Lost by an interruption, s: a restart, and half of the time since the last checkpoint.
  double lost_s() const { return cluster_.settings.restart_s + cluster_.settings.checkpoint_s / 2; }

  /// The longest iteration with which GPUs of this price are within the limits and below the best
  /// cost.
  double limit_s(double price_per_hour) const {
    if (!options_.pruning || options_.exhaustive) return never;
    double all_s =
        std::min(job_.limits.slo_s.value_or(never), job_.limits.deadline_s.value_or(never));
    const double max = std::min(job_.limits.budget.value_or(never), out_.plan ? out_.cost : never);
    if (price_per_hour > 0) all_s = std::min(all_s, max * 3600 / price_per_hour);
    return all_s / iterations() * (1 + 1e-12);
  }

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
  std::priority_queue<tree_node> left_;  // sets for which another cut may be better
  std::uint64_t numbered_ = 0, work_ = 0, spent_ = 0;
  std::unique_ptr<cost_trees> hph_, whale_;  // quick searches, once they have begun
  std::uint64_t next_ask_ = never_units;     // units after which they get their next turn
  std::uint64_t max_units_ = never_units;    // of a quick search: the end of its turn
  std::uint64_t look_until_ = never_units;
  bool until_plan_ = false;     // a quick search's turn ends at its first plan
  double best_closed_ = never;  // least cost by the closed form of any plan so far
  double loose_bound_ = never;  // least cost of sets whose plan may not be their best
  tree_node best_;              // the plan's set
  provision out_;
};

}  // namespace

provision search_market(const market& m, const idle_index& idle, const job_spec& job,
                        planning_budget& budget, const provision_options& options) {
  return cost_trees{m, idle, job, budget, options}.search();
}

}  // namespace troupe::planners
