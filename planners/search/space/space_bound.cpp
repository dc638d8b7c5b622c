#include "planners/search/space/space_bound.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "planners/search/space/box_refuter.hpp"

namespace troupe::planners {

namespace {

constexpr double unbounded = plan_box::unbounded;

class bound_search {
 public:
  bound_search(const space_problem& p, const space_times& times, planning_budget& budget)
      : problem_{with_all_cuts(p)},
        room_{problem_},
        floors_{problem_, times, room_},
        paths_{floors_},
        budget_{&budget} {
    use_shares(true);
  }

  double run(double best) {
    const bool fastest = problem_.goal == space_goal::fastest && best < unbounded;
    double bound =
        fastest ? within_cheap_part([&] { return with_shares(best); }) : with_shares(best);
    // Paths that know nodes rule out more, and so do rows and numbers of pipelines by themselves.
    if (!fastest || budget_->exhausted()) return bound;
    // With ranges and lines of their own.
    use_shares(problem_.space.own_shares);
    return std::max(bound, divide(bound, best));
  }

 private:
  void use_shares(bool own) {
    rows_.clear();
    for (std::size_t r = 0; r < problem_.rows.size(); ++r)
      rows_.emplace_back(floors_, paths_, room_, r, attempt_, own);
  }

  double with_shares(double best) {
    const double bound = with_these_shares(best, 0);
    if (problem_.space.own_shares || budget_->exhausted()) return bound;
    // Equal shares rule out more.
    use_shares(false);
    return with_these_shares(best, bound);
  }

  double with_these_shares(double best, double low) {
    if (problem_.goal == space_goal::fastest) return bisect(low, best, &bound_search::none_as_fast);
    // From where on there may be plans at all: roughly.
    fastest_s_ = 1e-6;
    while (fastest_s_ < 1e9 && !budget_->exhausted() &&
           attempt(2 * fastest_s_, &bound_search::none_as_fast))
      fastest_s_ *= 2;
    return bisect(low, best, &bound_search::none_as_cheap);
  }

  /// Paths without nodes show little more with more steps than that.
  template <class Bound>
  double within_cheap_part(Bound bound) {
    constexpr std::uint64_t enough = 216'000'000;
    auto own = budget_->part(std::min(enough, budget_->left() / 4 * 3));
    auto* all = std::exchange(budget_, &own);
    const double found = bound();
    budget_ = all;
    budget_->charge(own);
    return found;
  }

  /// Part of the budget for each attempt, so that one that leads nowhere leaves some for others.
  bool attempt(double value, bool (bound_search::*refuted)(double)) {
    return within_part(5, [&] { return (this->*refuted)(value); });
  }
  template <class Refuted>
  bool within_part(std::uint64_t attempts, Refuted refuted) {
    const auto units = budget_->left() / attempts + 1;
    attempt_ = planning_budget{units};
    const bool shown = refuted();
    budget_->spend(units - attempt_.left());
    return shown;
  }

  bool none_as_fast(double seconds) {
    return std::ranges::all_of(rows_,
                               [&](auto& r) { return r.refuted(seconds, unbounded, parts_); });
  }
  /// A plan of at most that score has, in any time, no dearer GPUs than score / time.
  bool none_as_cheap(double score) {
    double cheapest = unbounded;
    for (std::uint32_t k = 0; k < problem_.kinds.size(); ++k) {
      const bool is_priced = problem_.goal == space_goal::cheapest;
      if (room_.gpus(k) > 0)
        cheapest = std::min(cheapest, is_priced ? problem_.kinds[k].price_per_hour / 3600 : 1.0);
    }
    // One GPU of the cheapest kind, at least, all the time.
    const double last =
        std::min(problem_.max_s.value_or(unbounded), cheapest > 0 ? score / cheapest : unbounded);
    if (!(last < unbounded) || !(fastest_s_ > 0)) return false;
    for (double from = fastest_s_; from < last;) {
      const double to = std::min(last, (1 + 5 * parts_.tail) * from);
      const double per_s = score / from;
      const double price = problem_.goal == space_goal::cheapest ? per_s * 3600 : per_s;
      if (!std::ranges::all_of(rows_, [&](auto& r) { return r.refuted(to, price, parts_); }))
        return false;
      from = to;
    }
    return true;
  }

  /// Plans of some rows, numbers of pipelines and tails, none of which is as fast as `value`.
  struct open_box {
    double value = 0, step = 0;  // parts of the best plan's seconds; what is tried next
    std::size_t rows = 0;
    plan_box box;
  };

  /// From a value that no plan is as fast as on, always the box with the smallest value is looked
  /// at: it is raised by a step, or divided, or the step gets smaller.
  double divide(double low, double best) {
    constexpr double first_step = 0.02, last_step = 0.001;
    const auto above = [](const open_box& a, const open_box& b) { return a.value > b.value; };
    // A round part of the best plan's seconds: the grid of values does not depend on the bisection.
    const double from = std::floor(low / best / first_step) * first_step;
    std::vector<open_box> open;
    const auto add = [&](const open_box& b) {
      open.push_back(b);
      std::ranges::push_heap(open, above);
    };
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      rows_[r].set_joins(true);
      if (floors_.possible(r))
        add({from, first_step, r, {0, 1, rows_[r].max_pipelines(), 0, unbounded, unbounded}});
    }
    while (!open.empty() && !budget_->exhausted()) {
      std::ranges::pop_heap(open, above);
      auto at = open.back();
      open.pop_back();
      const double value = std::min(1.0, at.value + at.step);
      at.box.seconds = value * best;
      if (within_part(6, [&] { return rows_[at.rows].refuted_whole(at.box); })) {
        at.value = value;
        if (value < 1) add(at);
        continue;
      }
      if (auto parts = parts_of(at)) {
        add(parts->first);
        add(parts->second);
        continue;
      }
      at.step /= 2;
      add(at);
      if (at.step < last_step) break;
    }
    return open.empty() ? best : open.front().value * best;
  }

  /// A box by its numbers of pipelines, or else by its tail; none: both are small for the step.
  std::optional<std::pair<open_box, open_box>> parts_of(const open_box& at) {
    auto lower = at, upper = at;
    const double middle_s = rows_[at.rows].middle_tail_s(at.box, at.step);
    if (at.box.to_pipelines > std::min(2.0, 1 + 4 * at.step) * at.box.from_pipelines) {
      const auto middle = middle_of(at.box.from_pipelines, at.box.to_pipelines);
      lower.box.to_pipelines = middle, upper.box.from_pipelines = middle + 1;
    } else if (middle_s < unbounded) {
      lower.box.to_s = upper.box.from_s = middle_s;
    } else {
      return {};
    }
    return std::pair{lower, upper};
  }

  /// The last of the lower half of the ratio.
  static std::uint32_t middle_of(std::uint32_t from, std::uint32_t to) {
    auto middle = from;
    while (std::uint64_t{middle} * middle < std::uint64_t{from} * to) ++middle;
    return std::clamp(middle, from, to - 1);
  }

  /// The largest value, at most `best`, that could be refuted: first with few boxes, then with more
  /// of them.
  double bisect(double low, double best, bool (bound_search::*refuted)(double)) {
    if (!(best < unbounded)) {
      // No plan is known: as large as it can be shown to be.
      best = 1e-3;
      while (best < 1e9 && !budget_->exhausted() && attempt(best, refuted)) low = best, best *= 2;
    }
    for (const auto& parts : {smallest_box{0.04, 2}, {0.01, 1.25}, {0.004, 1.1}}) {
      parts_ = parts;
      double high = best;
      for (int i = 0; i < 8 && !budget_->exhausted() && high - low > 0.004 * best; ++i) {
        // Bounds are mostly near the best plan: there first.
        const double middle = i == 0 && low < 0.75 * high ? 0.75 * high : (low + high) / 2;
        (attempt(middle, refuted) ? low : high) = middle;
      }
    }
    return low;
  }

  static space_problem with_all_cuts(space_problem p) {
    p.grain = 1;
    return p;
  }

  const space_problem problem_;
  space_room room_;
  floor_table floors_;
  joined_paths paths_;
  planning_budget* budget_;
  planning_budget attempt_;
  std::vector<box_refuter> rows_;
  smallest_box parts_;
  double fastest_s_ = 0;
};

}  // namespace

double score_bound(const space_problem& p, const space_times& times, double best,
                   planning_budget& budget) {
  if (p.space.several_datacenters) return bound_search{p, times, budget}.run(best);
  // Each datacenter alone; floors are of all, so that those with equal GPUs have equal bounds.
  double bound = best;
  std::vector<std::vector<space_pool>> known;
  for (std::uint32_t d = 0; d < p.datacenters; ++d) {
    auto one = p;
    std::erase_if(one.pools, [&](const space_pool& pool) { return pool.datacenter != d; });
    auto alike = one.pools;
    for (auto& pool : alike) pool.datacenter = 0;
    if (alike.empty() || std::ranges::find(known, alike) != known.end()) continue;
    known.push_back(std::move(alike));
    bound = std::min(bound, bound_search{one, times, budget}.run(best));
  }
  return bound;
}

}  // namespace troupe::planners
