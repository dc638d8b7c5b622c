#include "planners/troupe/assignment.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <queue>
#include <span>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "messages/domain/work_kind.hpp"
#include "planners/cluster/planning_budget.hpp"
#include "planners/plans/mixed_plan.hpp"
#include "planners/policy/elastic_jobs.hpp"
#include "planners/troupe/change_bounds.hpp"
#include "planners/troupe/decision_facts.hpp"
#include "planners/troupe/decision_memory.hpp"
#include "planners/troupe/pool_capacity.hpp"
#include "planners/troupe/service_order.hpp"
#include "planners/troupe/waiting_prices.hpp"

namespace troupe::planners {

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

/// One assignment (rules 2 and 3). Jobs are served in order, each with the configuration that costs
/// all jobs least: its own time, plus what those behind it wait for the GPUs that it holds. Only
/// counts of GPUs of pools are assigned; pool_capacity keeps them placeable. Greedy, in one pass: a
/// choice is not taken back, except that GPUs which are left over go to the jobs that gain the
/// most.
class assigner {
 public:
  assigner(const cluster& c, const std::vector<gpu_pool>& pools, const std::vector<double>& speeds,
           const free_gpus& free, const decision_facts& facts, const job_costs& costs,
           const troupe_options& o)
      : c_{c},
        pools_{pools},
        speeds_{speeds},
        free_{free},
        facts_{facts},
        costs_{costs},
        o_{o},
        room_{facts.rooms()},
        prices_(pools.size()),
        awaited_(pools.size()) {}

  /// `behind`: the prices of all contenders; `shares`: in them, by contender. `keep`: every job
  /// that runs keeps its GPUs, or grows onto GPUs that no other job gets.
  std::vector<assigned> assign(const std::vector<contender>& contenders, const service_order& order,
                               waiting_prices behind, const decision_list<double>& shares,
                               bool keep) && {
    pinned_.assign(contenders.size(), false);
    out_.reserve(contenders.size());
    decision_list<service_rank> settling{facts_.memory()};  // the first one first
    settling.reserve(contenders.size());
    for (const auto& rank : keep ? std::span{facts_.ranks()} : order.ranks())
      if (rank.who->runs() && (keep || facts_.is_settling_now(*rank.who))) settling.push_back(rank);
    auto to_pin = settling.begin();
    std::size_t served = 0;
    for (; served < order.size(); ++served) {
      // Settling binds jobs of the same priority and of lower ones: the others are served before,
      // and one of those whose very GPUs they got has no claim to others.
      const auto& next = order.at(served);
      for (; to_pin != settling.end() && (keep || to_pin->priority >= next.priority); ++to_pin)
        if (served == 0 || free_.has(to_pin->who->job->where)) pin(*to_pin->who);
      if (is_full()) break;
      behind.remove(next, shares[facts_.index(next)]);
      if (!is_pinned(next)) serve(next, order.size() - served - 1, behind);
    }
    for (const auto* left : order.from(served))
      if (left->runs() && !is_pinned(*left)) out_.push_back({left, {}, {}, 0, 0});
    grow();
    return std::move(out_);
  }

 private:
  bool is_full() const {
    return std::ranges::all_of(room_, [](const pool_capacity& p) { return p.free() == 0; });
  }

  bool is_pinned(const contender& x) const { return pinned_[facts_.index(x)]; }

  bool has_room_as_it_is(const contender& x) const {
    if (!x.present) return false;
    const auto& f = x.table->figures[*x.present];
    return room_[f.pool].fits(f.gpus);
  }

  // Keeps what it has before jobs of its priority are served, unless that was given to a training.
  void pin(const contender& x) {
    assigned a{&x, {}, {}, 0, 0};
    if (x.present) {
      if (!has_room_as_it_is(x)) return;
      take(a, *x.present);
    } else if (!stay_mixed(a)) {
      return;
    }
    pinned_[facts_.index(x)] = true;
    out_.push_back(std::move(a));
  }

  // Staying as it is is one of the options of a running job; it is the cheapest for a while, since
  // any other costs a restart (start_s). Jobs that share a table have the same options: where the
  // first of them that waits found no room, none of them will.
  void serve(const contender& x, std::size_t jobs_behind, const waiting_prices& behind) {
    if (!x.runs() && refused_.contains(x.table)) return;  // room only shrinks
    const double factor = costs_.price_factor();
    auto& a = out_.emplace_back(assigned{&x, {}, {}, jobs_behind, factor * behind.highest()});
    for (std::size_t p = 0; p < prices_.size(); ++p) prices_[p] = factor * behind.in(p);
    if (has_room_as_it_is(x) && is_cheapest_as_it_is(x, prices_, costs_, o_))
      return take(a, *x.present);
    double best = infinite;
    if (x.runs() && !x.present)
      best = costs_.of_run(x.samples_left / x.job->spec->global_batch * x.job->iteration_s,
                           weight_of(c_, speeds_, x.job->where), a.price);
    std::optional<std::size_t> chosen;
    const auto runs = facts_.runs(x);
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const auto& r = runs[i];
      if (!room_[r.pool].fits(r.gpus)) continue;
      const double cost = costs_.of_run(r.time_s, r.weight, prices_[r.pool]);
      if (cost < best) {
        best = cost;
        chosen = i;
      }
    }
    if (!chosen && x.runs() && stay_mixed(a)) return;
    if (chosen && !x.runs() && waits(a, runs[*chosen], best)) return;
    if (chosen)
      take(a, *chosen);
    else if (x.options().empty())
      start_mixed(a);
    else
      refused_.insert(x.table);
  }

  // Is a job that could start with `now` better off with GPUs that running jobs release soon, and
  // are all others, too? On a busy cluster one GPU is free at a time: a job that took whichever it
  // is would hold a slow one for long, and a fast one that others gain more by. `a`: gets what it
  // waits for.
  bool waits(assigned& a, const possible_run& now, double cost) {
    const auto& x = *a.who;
    if (facts_.now_s() >= patient_until_s(x, o_)) return false;
    const double max_s = patience_s(x, o_) - x.waited_s;
    double first_s = now.time_s;
    const auto runs = facts_.runs(x);
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const auto& r = runs[i];
      if (room_[r.pool].fits(r.gpus)) continue;
      const auto gpus = r.gpus + awaited_[r.pool], free = room_[r.pool].free();
      const double wait_s = gpus > free ? facts_.releases()[r.pool].until_s(gpus - free) : infinite;
      if (wait_s > max_s || wait_s + r.time_s >= first_s) continue;
      if (wait_s + costs_.of_run(r.time_s, r.weight, prices_[r.pool]) >= cost) continue;
      first_s = wait_s + r.time_s;
      a.awaited = static_cast<std::uint32_t>(i);
      a.wait_s = wait_s;
    }
    if (a.wait_s > 0) awaited_[runs[a.awaited].pool] += runs[a.awaited].gpus;
    return a.wait_s > 0;
  }

  void take(assigned& a, std::size_t option) {
    const auto& f = a.who->table->figures[option];
    room_[f.pool].take(f.gpus);
    a.option = option;
  }

  // -- on GPUs of several pools

  // The job goes on where it is, if no job before it has these GPUs.
  bool stay_mixed(assigned& a) {
    const auto& j = *a.who->job;
    if (a.who->present || !reserve(j.where)) return false;
    a.mixed = std::make_shared<const placed_plan>(placed_plan{j.how, j.where});
    return true;
  }

  // By MARP's plans, for a job that no single pool can hold; a program with exact_gpus by its own.
  void start_mixed(assigned& a) {
    const auto& j = *a.who->job;
    if (!j.plans) return;
    auto found = find_mixed_plan(c_, idle_beside(), j,
                                 [this](const allocation& where) { return reserve(where); });
    if (found)
      a.mixed = std::make_shared<const placed_plan>(std::move(*found));
    else if (j.facts().exact_gpus)
      refused_.insert(a.who->table);
  }

  // Takes these very GPUs, if what was assigned before can be placed beside them.
  bool reserve(const allocation& where) {
    if (!free_.has(where)) return false;
    free_.take(where);
    update_rooms();
    if (std::ranges::all_of(room_, &pool_capacity::is_valid)) return true;
    free_.give_back(where);
    update_rooms();
    return false;
  }
  void update_rooms() {
    for (std::size_t p = 0; p < pools_.size(); ++p) room_[p].update(pools_[p], free_);
  }

  // The idle GPUs once all assigned counts are placed.
  idle_index idle_beside() const {
    std::vector<count_grant> grants;
    for (const auto& a : out_) {
      if (!a.option) continue;
      const auto& o = a.who->options()[*a.option];
      grants.push_back(
          {o.pool, o.gpus, &a.who->job->where, a.who->runs() && a.option == a.who->present});
    }
    std::ranges::stable_sort(grants, std::greater{}, &count_grant::gpus);
    auto free = free_;
    place_counts(pools_, grants, free);
    idle_index idle{c_};
    for (node_index n = 0; n < c_.nodes.size(); ++n) idle.set_idle(n, free.of(n));
    return idle;
  }

  // -- GPUs that are left over

  struct change {
    double saving = 0;  // seconds of the job for a GPU more of the fastest type's speed
    std::size_t who = 0, option = 0;
    bool operator<(const change& b) const {
      return std::tuple(saving, b.who, b.option) < std::tuple(b.saving, who, option);
    }
  };

  // The change of one job's configuration that saves most seconds per GPU more. With no job waiting
  // GPUs cost nothing, so that the price is 0; a saving below min_saving is not worth a restart.
  std::optional<change> best_change(std::size_t who) const {
    const auto& a = out_[who];
    if (!a.option || facts_.is_settling_now(*a.who)) return {};
    if (is_fast_enough(*a.who, *a.option, costs_, o_)) return {};
    const auto runs = facts_.runs(*a.who);
    const auto& present = runs[*a.option];
    const auto largest = room_[present.pool].largest_without(present.gpus);
    const double now = costs_.of_run(present.time_s, present.weight, 0);
    std::optional<change> best;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const auto& r = runs[i];
      if (i == *a.option) continue;
      if (r.pool == present.pool ? r.gpus > largest : !room_[r.pool].fits(r.gpus)) continue;
      const double saved = now - costs_.of_run(r.time_s, r.weight, 0);
      if (saved <= o_.min_saving * now) continue;
      const double more = std::max(r.weight - present.weight, 1e-3);
      if (!best || saved / more > best->saving) best = change{saved / more, who, i};
    }
    return best;
  }

  bool fits_instead(const possible_run& present, const possible_run& next) const {
    const auto& room = room_[next.pool];
    return present.pool == next.pool ? next.gpus <= room.largest_without(present.gpus)
                                     : room.fits(next.gpus);
  }

  using change_queue = std::priority_queue<change, decision_list<change>>;

  change_queue best_changes() const {
    change_queue changes{std::less<change>{}, decision_list<change>{facts_.memory()}};
    for (std::size_t i = 0; i < out_.size(); ++i)
      if (const auto x = best_change(i)) changes.push(*x);
    return changes;
  }

  // Rule 3: steepest ascent over a heap of each job's best change. A change is checked again when
  // it is popped, because others have taken room since; a job that frees room makes all of them
  // stale.
  void grow() {
    auto changes = best_changes();
    while (!changes.empty()) {
      const auto top = changes.top();
      changes.pop();
      auto& a = out_[top.who];
      const auto runs = facts_.runs(*a.who);
      const auto &present = runs[*a.option], &next = runs[top.option];
      if (fits_instead(present, next)) {
        room_[present.pool].give_back(present.gpus);
        take(a, top.option);
        // Where there is more room than before, others may have better changes now.
        if (present.pool != next.pool || next.gpus < present.gpus) {
          changes = best_changes();
          continue;
        }
      }
      if (const auto x = best_change(top.who)) changes.push(*x);
    }
  }

  const cluster& c_;
  const std::vector<gpu_pool>& pools_;
  const std::vector<double>& speeds_;  // by GPU type
  free_gpus free_;
  const decision_facts& facts_;
  const job_costs& costs_;
  const troupe_options& o_;
  std::vector<pool_capacity> room_;
  std::vector<double> prices_;          // of waiting, by pool, for the job that is being served
  std::vector<std::uint32_t> awaited_;  // GPUs that jobs wait for though they could start, by pool
  std::unordered_set<const configuration_table*> refused_;  // order never reaches an output
  std::vector<bool> pinned_;                                // by contender
  std::vector<assigned> out_;
};

}  // namespace

namespace {

/// Running jobs that an assignment stops or gives other GPUs.
std::vector<const contender*> changed(const std::vector<assigned>& all) {
  std::vector<const contender*> jobs;
  for (const auto& a : all)
    if (a.who->runs() && (a.option ? a.option != a.who->present : !a.mixed)) jobs.push_back(a.who);
  return jobs;
}

/// Does a job get GPUs only in `anew`, for which it stops one of a lower priority?
bool obeys_priority(const decision_facts& facts, const std::vector<assigned>& kept,
                    const std::vector<assigned>& anew,
                    const std::vector<const contender*>& stopped) {
  std::vector<bool> has_gpus(facts.contenders());
  for (const auto& a : kept)
    if (a.has_gpus()) has_gpus[facts.index(*a.who)] = true;
  const auto priority = [](const contender* x) { return x->priority; };
  const auto lowest = priority(*std::ranges::min_element(stopped, {}, priority));
  return std::ranges::any_of(anew, [&](const assigned& a) {
    return a.has_gpus() && !has_gpus[facts.index(*a.who)] && priority(a.who) > lowest;
  });
}

}  // namespace

// Rule 4: two candidate assignments, one from scratch and one in which running jobs keep their
// GPUs. Choosing between whole assignments, not job by job, lets several jobs change together where
// only the sum of the changes pays off; the difference in loss must exceed a fixed number of
// restarts for each job that is stopped, so that estimates which are slightly wrong do not move
// jobs back and forth.
std::vector<assigned> assign(const cluster& c, const std::vector<gpu_pool>& pools,
                             const std::vector<double>& speeds,
                             const std::vector<contender>& contenders, const free_gpus& free,
                             double now_s, double load, const troupe_options& o) {
  ++searches_made;
  const decision_facts facts{contenders, pools, free, now_s, o};
  const auto weights = pool_weights(speeds, pools, free);
  const job_costs costs{c, std::accumulate(weights.begin(), weights.end(), 0.0), load, o};
  const service_order order{facts.ranks()};
  waiting_prices behind{weights};
  decision_list<double> shares{facts.memory()};
  shares.reserve(contenders.size());
  for (const auto& x : contenders) behind.add(x, shares.emplace_back(behind.share_of(x)));
  const auto assigned_to = [&](bool keep) {
    return assigner{c, pools, speeds, free, facts, costs, o}.assign(contenders, order, behind,
                                                                    shares, keep);
  };
  auto anew = assigned_to(false);
  const auto stopped = changed(anew);
  if (stopped.empty()) return anew;
  auto kept = assigned_to(true);
  if (obeys_priority(facts, kept, anew, stopped)) return anew;
  double restarts_s = 0;
  for (const auto* x : stopped) restarts_s += (o.stop_cost - 1) * x->restart_s;
  const queue_losses losses{c, contenders, speeds, weights, costs};
  const bool better = losses.of(anew) + restarts_s < losses.of(kept);
  return better ? std::move(anew) : std::move(kept);
}

}  // namespace troupe::planners
