#include "planners/espresso/completion_bound.hpp"

#include <algorithm>
#include <cmath>

#include "messages/base/time.hpp"

// A node's cost bound is evaluated for every node that is offered, so it must not place anything.
// Multiplying the shortest time by the least price is a bound, but a weak one: fast stages and
// cheap stages are different stages. The cost is time times price, and for a fixed time T the
// question is linear: of the conditions K(y) >= min_saving(x, y) that an iteration of T implies
// (iteration_bound.hpp), each is a sum over the stages, so the least price that meets one is a
// fractional knapsack over the open types. The largest over the conditions is price(T), which falls
// as T grows (faster needs more). The bound is the minimum of T * price(T), found by halving
// intervals of T. It holds for any completion: the plan of a completion has some time T, and its
// price is at least price(T). docs/planners/espresso.md, "Cost trees", has the derivation.

namespace troupe::planners {
namespace {

/// The completions of a node: the decided stages, with `missing` more of the open types.
class completions {
 public:
  completions(const division& d, const iteration_bound& bound, const stage_counts& counts,
              std::size_t decided, std::uint32_t missing)
      : d_{d}, bound_{bound}, counts_{counts}, missing_{missing} {
    for (auto t = decided; t < d.types.size() && missing > 0; ++t)
      if (d.types[t].stages > 0) open_.push_back({t, 0, 0});
    const auto see = [&](std::size_t t) {
      last_rate_ = std::max(last_rate_, bound.last_rate(t));
      if (bound.through_s(t) < min_through_s_) min_through_s_ = bound.through_s(t);
      possible_.push_back(t);
    };
    for (std::size_t t = 0; t < counts.size(); ++t) {
      if (counts[t] == 0) continue;
      price_ += counts[t] * d.types[t].price_per_hour;
      see(t);
    }
    for (const auto& o : open_)
      if (counts[o.type] == 0) see(o.type);
    min_price_ = price_ + fill([&](const open_type& o) { return price(o); }).price;
  }

  double min_price() const { return min_price_; }

  /// Lower bound of the iteration over all completions: the open stages are the fastest ones. If no
  /// order of types is the fastest in both respects, S and u are bounded apart.
  double seconds() {
    auto fastest = counts_;
    double rate = last_rate_;
    fill([&](const open_type& o) { return -bound_.rate(o.type); },
         [&](const open_type& o, std::uint32_t n) { fastest[o.type] += n; });
    if (bound_.ordered()) return bound_.of(fastest, last_rate_);
    for (std::size_t t = 0; t < fastest.size(); ++t) rate += fastest[t] * bound_.rate(t);
    const double own_s = std::max(bound_.min_own_s(), bound_.work() / rate);
    return bound_.work() * min_through_s_ + bound_.sends_s() + own_s;
  }

  /// price(T): the least price of a completion, fractions of stages allowed, that can take
  /// `seconds`. Infinite if none can. K has its corners at the types' through_s, so these and x are
  /// the y to try.
  double min_price(double seconds) {
    const double x = (seconds - bound_.sends_s()) / bound_.work();
    double min = min_price_with(x, x);
    for (const auto t : possible_)
      if (bound_.through_s(t) < x && min < never)
        min = std::max(min, min_price_with(x, bound_.through_s(t)));
    return min;
  }

 private:
  struct open_type {
    std::size_t type = 0;
    double saves = 0;  // what a stage adds to K(y)
    double rank = 0;   // key of the last fill()
  };
  struct filled {
    double price = 0, saves = 0;
  };

  double price(const open_type& o) const { return d_.types[o.type].price_per_hour; }

  /// Distributes the missing stages over the open types so that the sum of `value` is the least.
  template <class Value, class Take = decltype([](const open_type&, std::uint32_t) {})>
  filled fill(Value&& value, Take&& take = {}) {
    for (auto& o : open_) o.rank = value(o);
    std::ranges::sort(open_, {}, [](const open_type& o) { return std::pair{o.rank, o.type}; });
    auto left = missing_;
    filled sum;
    for (const auto& o : open_) {
      const auto n = std::min(left, d_.types[o.type].stages);
      take(o, n);
      sum.price += n * price(o);
      sum.saves += n * o.saves;
      left -= n;
    }
    return sum;
  }

  /// The least price under one condition, K(y) >= min_saving(x, y). Lagrangian: for any price q of
  /// a unit of K, every completion that meets the condition costs at least the minimum over all
  /// completions of price - q * saves, plus q * needed. The best q is between a completion that
  /// saves too little (`min`) and one that saves enough (`max`): each step takes the q at which
  /// these two are equal, until no completion is below both. Few steps, each a sort of the open
  /// types.
  double min_price_with(double x, double y) {
    const auto saves = [&](std::size_t t) {
      return bound_.rate(t) * std::max(0.0, y - bound_.through_s(t));
    };
    double needed =
        bound_.min_saving(x, y) * (1 - 1e-9) - last_rate_ * std::max(0.0, y - min_through_s_);
    for (std::size_t t = 0; t < counts_.size(); ++t)
      if (counts_[t] > 0) needed -= counts_[t] * saves(t);
    if (needed <= 0) return min_price_;
    for (auto& o : open_) o.saves = saves(o.type);
    auto max = fill([&](const open_type& o) { return -o.saves; });
    if (max.saves < needed) return never;
    auto min = fill([&](const open_type& o) { return price(o); });
    double best = min.price;
    while (min.saves < needed && max.saves > min.saves) {
      const double q = (max.price - min.price) / (max.saves - min.saves);
      if (q <= 0) break;
      const auto next = fill([&](const open_type& o) { return price(o) - q * o.saves; });
      best = std::max(best, next.price + q * (needed - next.saves));
      if (next.price - q * next.saves >= (min.price - q * min.saves) - 1e-12 * max.price) break;
      (next.saves < needed ? min : max) = next;
    }
    return price_ + best;
  }

  const division& d_;
  const iteration_bound& bound_;
  const stage_counts& counts_;
  std::uint32_t missing_;
  std::vector<open_type> open_;
  std::vector<std::size_t> possible_;
  double price_ = 0, min_price_ = 0;
  double last_rate_ = 0, min_through_s_ = never;
};

/// The minimum of T * price(T). price falls with T, so on an interval [a, b] it is at least a *
/// price(b); intervals are halved (by ratio) only where that is below the best known, by more than
/// `exact`.
class cost_search {
 public:
  cost_search(completions& all, double enough) : all_{all}, min_{enough} {}

  /// The minimum over times from `from_s` to `max_s`, in pieces that grow by 1.3 until the least
  /// price alone makes all later ones more expensive.
  double from(double from_s, double max_s) {
    double at_price = priced(from_s), bound = never;
    for (double a = from_s; a < max_s;) {
      // No price is below the least.
      if (all_.min_price() * a >= min_) return std::min(bound, all_.min_price() * a);
      const double b = std::min(max_s, 1.3 * a);
      const double next = priced(b);
      bound = std::min(bound, between(a, at_price, b, next));
      a = b, at_price = next;
    }
    return bound;
  }

 private:
  static constexpr double exact = 0.002;  // share of the cost by which the bound may be too low

  /// price(T), noting the cost there: an upper bound of the minimum, which ends the search early.
  double priced(double seconds) {
    const double price = all_.min_price(seconds);
    min_ = std::min(min_, seconds * price);
    return price;
  }
  double between(double a, double at_a, double b, double at_b) {
    const double bound = a * at_b;
    if (bound >= min_ * (1 - exact) || b <= a * (1 + exact) || at_a == at_b) return bound;
    const double mid = std::sqrt(a * b), at_mid = priced(mid);
    return std::min(between(a, at_a, mid, at_mid), between(mid, at_mid, b, at_b));
  }

  completions& all_;
  double min_;
};

}  // namespace

completion_bound min_completion(const division& d, const iteration_bound& bound,
                                const stage_counts& counts, std::size_t decided,
                                std::uint32_t missing, double max_s, double enough) {
  completions all{d, bound, counts, decided, missing};
  completion_bound out;
  out.seconds = all.seconds();
  out.seconds_times_price = out.seconds * all.min_price();
  if (out.seconds_times_price >= enough) return out;
  if (missing == 0) {
    out.seconds = bound.in_pieces(counts);
    out.seconds_times_price = out.seconds * all.min_price();
    return out;
  }
  out.seconds_times_price =
      std::max(out.seconds_times_price, cost_search{all, enough}.from(out.seconds, max_s));
  return out;
}

}  // namespace troupe::planners
