#include "planners/crius/crius_search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "messages/base/folds.hpp"
#include "messages/base/invariant.hpp"

// The search for a scheduling choice (section 6.1): a knapsack with one constraint per pool and at
// most `depth` items of different jobs, where an item takes GPUs of one pool and frees some of
// another. With n running jobs and k other Cells for each there are some (n k)^depth choices, too
// many for thousands of jobs at every event, and greedy moves miss rescalings that only pay
// together. Four things make the exact search quick:
//
// - Items that free and take the same GPUs are interchangeable: the best `depth` of each kind are
//   enough (keep_best_of_kind).
// - It branches only where it has to: as long as GPUs of a pool are missing, one of the items to
//   come must free some of it; once none are missing, only items that gain can improve the choice.
// - Lagrangian bound: for any prices of GPUs, a choice gains at most the price of the idle GPUs
//   plus the largest reduced gains (gain less price of what it takes, plus that of what it frees).
//   Branches whose bound is no better than the best are cut; subgradient steps find prices that
//   leave little.
// - The arriving job matters only by the pool and number of its GPUs: rooms are kept for all jobs.
//
// When the steps run out, the best choice so far is returned; it is feasible, but may not be the
// best.

namespace troupe::planners {

namespace {

constexpr double min_gain = 1e-9;  // less than this is rounding

}  // namespace

scheduling_search::scheduling_search(const scheduling_problem& problem, std::uint32_t depth)
    : depth_{depth},
      max_freed_(problem.idle.size()),
      slack_(problem.idle.begin(), problem.idle.end()),
      price_(problem.idle.size()),
      freeing_(problem.idle.size()) {
  list_items(problem.running);
}

/// Each other Cell of each running job, unless it neither frees GPUs nor gains.
void scheduling_search::list_items(const std::vector<scalable_job>& running) {
  for (std::uint32_t j = 0; j < running.size(); ++j) {
    const auto& job = running[j];
    for (std::uint32_t k = 0; k < job.others.size(); ++k) {
      const auto& to = job.others[k];
      item x{{j, k}, job.present.pool, job.present.gpus, to.pool, to.gpus, 0, 0};
      x.gain = to.value - job.present.value;
      if (x.from == x.to) {  // only the difference counts
        const auto same = std::min(x.freed, x.taken);
        x.freed -= same;
        x.taken -= same;
      }
      if (x.freed > 0 || x.gain > 0) items_.push_back(x);
    }
  }
  keep_best_of_kind(items_);
  for (const auto& x : items_) max_freed_[x.from] = std::max(max_freed_[x.from], x.freed);
}

/// Among rescalings that free and take the same GPUs, the best `depth` are enough: a choice has at
/// most `depth` of them, so any other could be exchanged for one of these whose job it does not
/// use.
void scheduling_search::keep_best_of_kind(std::vector<item>& all) const {
  const auto kind = [](const item& x) { return std::tuple(x.from, x.freed, x.to, x.taken); };
  std::ranges::sort(all, [&](const item& a, const item& b) {
    return std::tuple(kind(a), -a.gain, a.what.job, a.what.choice) <
           std::tuple(kind(b), -b.gain, b.what.job, b.what.choice);
  });
  std::vector<item> kept;
  std::size_t alike = 0;
  for (const auto& x : all) {
    alike = !kept.empty() && kind(kept.back()) == kind(x) ? alike + 1 : 1;
    if (alike <= depth_) kept.push_back(x);
  }
  all = std::move(kept);
}

std::optional<scheduling_choice> scheduling_search::best(const std::vector<cell_choice>& arrivals,
                                                         std::uint64_t& steps) {
  steps_ = steps;
  std::optional<scheduling_choice> best;
  const auto take = [&](const room& r, double value, std::optional<std::uint32_t> arrival) {
    if (!r.gain || value + *r.gain <= (best ? best->gain : 0) + min_gain) return;
    best = scheduling_choice{arrival, {}, value + *r.gain};
    for (const auto i : r.used) best->rescalings.push_back(items_[i].what);
  };
  if (arrivals.empty()) take(room_for(0, 0, 0), 0, {});
  for (std::uint32_t a = 0; a < arrivals.size(); ++a) {
    const auto& x = arrivals[a];
    take(room_for(x.pool, x.gpus, -std::ceil(x.value)), x.value, a);
  }
  steps = steps_;
  return best;
}

/// The best room for `gpus` of a pool, from memory if it was searched for with this `above` or a
/// smaller one. Rooms that gain no more than `above` are not searched for: the job would not gain
/// with them.
const scheduling_search::room& scheduling_search::room_for(std::uint32_t pool, std::uint32_t gpus,
                                                           double above) {
  auto& known = known_.try_emplace({pool, gpus}, room{1, {}, {}}).first->second;
  if (known.gain || known.above <= above) return known;
  best_ = {above, {}, {}};
  min_ = above + min_gain;
  slack_[pool] -= gpus;
  price_gpus(above);
  descend(depth_, 0, 0);
  slack_[pool] += gpus;
  return known = best_;
}

/// Lowers the Lagrangian bound by subgradient steps (Polyak's length, with `above` as the target),
/// beginning with the prices of the last room. The subgradient is the number of GPUs that the
/// bound's own items leave over, by pool: prices fall where some are left and rise where some are
/// missing. Any prices are valid; it stops after a few steps without progress, or when the bound
/// reaches `above`.
void scheduling_search::price_gpus(double above) {
  constexpr int max_steps = 24, max_in_vain = 4;
  int in_vain = 0;
  double min = std::numeric_limits<double>::infinity();
  auto best = price_;
  for (int i = 0; i < max_steps; ++i) {
    const double bound = price_items();
    in_vain = bound < min - 1e-3 ? 0 : in_vain + 1;
    if (bound < min) min = bound, best = price_;
    if (bound <= above || in_vain == max_in_vain) break;
    std::vector<double> left_over(slack_.begin(), slack_.end());
    for (const auto k : top_) {
      left_over[items_[k].from] += items_[k].freed;
      left_over[items_[k].to] -= items_[k].taken;
    }
    const double square = sum_of(left_over, [](double n) { return n * n; });
    if (square == 0) break;
    for (std::size_t p = 0; p < price_.size(); ++p)
      price_[p] = std::max(0.0, price_[p] - (bound - above) / square * left_over[p]);
  }
  price_ = best;
  price_items();
  sort_items();
}

/// Computes reduced gains, and the largest ones of `depth` different jobs. Returns the bound.
double scheduling_search::price_items() {
  top_.clear();
  const auto less = [&](std::uint32_t a, std::uint32_t b) {
    return items_[a].reduced > items_[b].reduced;
  };
  for (std::uint32_t i = 0; i < items_.size(); ++i) {
    auto& x = items_[i];
    x.reduced = x.gain + price_[x.from] * x.freed - price_[x.to] * x.taken;
    if (x.reduced <= 0 || depth_ == 0) continue;
    if (top_.size() == depth_ && x.reduced <= items_[top_.back()].reduced) continue;
    const auto same =
        std::ranges::find(top_, x.what.job, [&](auto k) { return items_[k].what.job; });
    if (same != top_.end()) {
      if (items_[*same].reduced >= x.reduced) continue;
      top_.erase(same);
    } else if (top_.size() == depth_) {
      top_.pop_back();
    }
    top_.insert(std::ranges::upper_bound(top_, i, less), i);
  }
  rest_.assign(depth_ + 1, 0);
  for (std::uint32_t n = 0; n < depth_; ++n)
    rest_[n + 1] = rest_[n] + (n < top_.size() ? items_[top_[n]].reduced : 0);
  return price_of_slack() + rest_[depth_];
}

/// By reduced gain, so that a loop over items ends at the first that cannot be in a better choice.
void scheduling_search::sort_items() {
  for (auto& list : freeing_) list.clear();
  extras_.clear();
  for (std::uint32_t i = 0; i < items_.size(); ++i) {
    if (items_[i].freed > 0) freeing_[items_[i].from].push_back(i);
    if (items_[i].gain > 0) extras_.push_back(i);
  }
  const auto reduced = [&](std::uint32_t i) { return -items_[i].reduced; };
  for (auto& list : freeing_) std::ranges::stable_sort(list, {}, reduced);
  std::ranges::stable_sort(extras_, {}, reduced);
}

double scheduling_search::price_of_slack() const {
  return std::inner_product(price_.begin(), price_.end(), slack_.begin(), 0.0);
}

/// Extends the items in used_ by up to `left` more. `gain` plus the price of the slack is what any
/// completion is measured from.
void scheduling_search::descend(std::uint32_t left, double gain, std::size_t next_extra) {
  const double bound = gain + price_of_slack();
  if (bound + rest_[left] <= min_) return;
  for (std::uint32_t p = 0; p < slack_.size(); ++p)
    if (slack_[p] < 0) return free_more(p, left, gain, bound, next_extra);
  if (gain > min_) {
    best_.gain = gain;
    best_.used = used_;
    min_ = gain + min_gain;
  }
  take_extras(left, gain, bound, next_extra);
}

/// GPUs of this pool are missing: tries each item that frees some as the next one. The last item
/// must free all that are missing.
void scheduling_search::free_more(std::uint32_t pool, std::uint32_t left, double gain, double bound,
                                  std::size_t next_extra) {
  if (left == 0 || hopeless(left)) return;
  for (const auto i : freeing_[pool]) {
    const auto& x = items_[i];
    if (steps_ == 0 || bound + x.reduced + rest_[left - 1] <= min_) return;
    --steps_;
    if (left > 1 || x.freed + slack_[pool] >= 0) apply(i, left, gain, next_extra);
  }
}

/// Nothing is missing: only items that gain can improve a feasible choice. In one order, so that no
/// subset of them is tried twice.
void scheduling_search::take_extras(std::uint32_t left, double gain, double bound,
                                    std::size_t next_extra) {
  if (left == 0) return;
  for (auto k = next_extra; k < extras_.size(); ++k) {
    const auto& x = items_[extras_[k]];
    if (steps_ == 0 || bound + x.reduced + rest_[left - 1] <= min_) return;
    --steps_;
    if (left > 1 || slack_[x.to] >= x.taken) apply(extras_[k], left, gain, k);
  }
}

void scheduling_search::apply(std::uint32_t i, std::uint32_t left, double gain,
                              std::size_t next_extra) {
  const auto& x = items_[i];
  if (std::ranges::any_of(used_, [&](auto k) { return items_[k].what.job == x.what.job; })) return;
  used_.push_back(i);
  slack_[x.from] += x.freed;
  slack_[x.to] -= x.taken;
  descend(left - 1, gain + x.gain, next_extra);
  slack_[x.to] += x.taken;
  slack_[x.from] -= x.freed;
  TROUPE_INVARIANT(used_.back() == i, "the search takes its choices back in reverse order");
  used_.pop_back();
}

bool scheduling_search::hopeless(std::uint32_t left) const {
  std::int64_t needed = 0;
  for (std::size_t p = 0; p < slack_.size(); ++p) {
    if (slack_[p] >= 0) continue;
    if (max_freed_[p] == 0) return true;
    needed += (-slack_[p] + max_freed_[p] - 1) / max_freed_[p];
  }
  return needed > left;
}

}  // namespace troupe::planners
