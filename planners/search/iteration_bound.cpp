#include "planners/search/iteration_bound.hpp"

#include <utility>

#include "messages/base/folds.hpp"
#include "messages/base/time.hpp"
#include "planners/schedule/schedule.hpp"

namespace troupe::planners {

// A bound for a set must hold for every order and cut, and it is evaluated for every set that a
// search meets: up to a million. Trying orders is out of the question, and Espresso's equation 5
// (all work, over all speed and the share of time that stages are busy) is no lower bound on mixed
// GPUs: a slow GPU with few layers adds almost no bubble (docs/planners/espresso.md has an
// example). So each of the terms (1) to (4) of docs/planners/plan_search.md is relaxed on its own:
// stages may have fractions of pieces, at the best rate of any range, and any position. What is
// left is a linear program in u, the largest of what a stage adds to S, with the work of each stage
// as variables. For one u it is solved by filling the stages of the fastest types first; over u it
// is convex and piecewise linear, so its minimum is at one of O(types) values. Each relaxation only
// enlarges the set of solutions: what results is a lower bound.

/// Term (1) less S, of a stage with `behind` stages behind it.
template <class Costs>
double iteration_bound::own_s(const Costs& k, std::uint32_t behind) const {
  const double warm = std::min(microbatches_, behind + 1);
  return (microbatches_ - warm) * k.forward_s +
         (microbatches_ - 1.0) * (k.recompute_s + k.backward_s);
}

/// Rates by term (1): with w = p, the largest that any position gives, a stage adds at least (m -
/// min(m, p)) f + (m - 1) (r + b) to S, and as the last stage (m - 1) (f + b), as that does not
/// recompute.
iteration_bound::iteration_bound(const stage_table& table, std::uint32_t microbatches,
                                 std::uint32_t stages, const transfers& x)
    : table_{&table},
      sends_{x},
      work_{table.work_from(0)},
      sends_s_{sends_s(stages)},
      microbatches_{microbatches},
      stages_{stages} {
  const double m = microbatches;
  // Stage i still has its sums to do when its backwards have ended, less the i backwards and sends
  // before it that hide them. The longest of these tails is at least their mean, with (p - 1) / 2
  // backwards and sends on average; and a backward takes at most u / (m - 1).
  if (m > 1) {
    tail_slope_ = (stages - 1) / 2.0 / (m - 1);
    const double shown_s = x.sums_s / stages - (stages - 1) / 2.0 * x.max_send_s;
    if (stages > 1 && shown_s > 0) hidden_below_s_ = shown_s / tail_slope_;
    if (stages == 1) sends_s_ += x.sums_s;
  }
  for (std::size_t t = 0; t < table.types(); ++t) {
    const auto& k = table.middle_floor(t);
    const auto& z = table.last_floor(t);
    const double through = stages == 1
                               ? z.forward_s + z.backward_s
                               : std::min(k.forward_s + k.backward_s, z.forward_s + z.backward_s);
    const double min = 1e-12 * through;  // no rate is infinite
    const double last = std::max(min, (m - 1) * (z.forward_s + z.backward_s));
    const double own = stages == 1 ? last : std::max(min, own_s(k, stages - 1));
    through_s_.push_back(through);
    rate_.push_back(1 / own);
    last_rate_.push_back(std::max(0.0, 1 / last - 1 / own));
  }
  fastest_ = indices(table.types());
  std::ranges::sort(fastest_, {}, [&](std::size_t t) { return std::pair{through_s_[t], t}; });
  for (std::size_t i = 1; i < fastest_.size(); ++i)
    ordered_ = ordered_ && rate_[fastest_[i - 1]] >= rate_[fastest_[i]];
  add_round_limits(table);
  // Term (4) of the last stage but one, which sends both ways and has w = 2.
  const double after_first = stages > 2 ? m - std::min(m, 2.0) : 0;
  if (stages > 1) min_own_s_ = std::max(min_own_s_, (m - 1 + after_first) * x.card_s);
}

/// Term (2) read the other way: of the last n stages, the first makes R - 1 round trips of Y within
/// u, so Y is at most u / (R - 1), sends included. Each stage in front of them has no more work
/// than it can do in u. Together that limits S to a multiple of u, for every n. With one round
/// more, some trips begin at the stage behind (term (3), trips.hpp).
void iteration_bound::add_round_limits(const stage_table& table) {
  double others = 0;  // the most S of the stages in front, per second of u
  for (auto behind = stages_; behind-- > 0;) {
    double max = 0;
    for (std::size_t t = 0; t < table.types(); ++t)
      max = std::max(max, through_s_[t] / std::max(1e-12 * through_s_[t],
                                                   own_s(table.middle_floor(t), behind)));
    const auto m = microbatches_ - 1, held = behind + 1;
    if (m >= held) add_round_limit(m / held, 0, max, others, behind);
    const auto rounds = (m + held - 1) / held, shorter = rounds * held - m;
    if (sends_.trips && m >= held && shorter > 0 && shorter < rounds)
      add_round_limit(rounds, shorter, max, others, behind);
    others += max;
  }
}

/// `shorter` of the rounds are without the first stage, which has at most max * u of S; the stages
/// in front of it have `others` * u. A limit that another one implies is left out.
void iteration_bound::add_round_limit(double rounds, double shorter, double max, double others,
                                      std::uint32_t behind) {
  round_limit l{(1 + shorter * max) / rounds + others, sends_s(behind + 1), 0, rounds, behind};
  if (shorter > 0) l.less_s = shorter / rounds * (l.sends_s - sends_s(behind));
  l.sends_s -= l.less_s;
  min_own_s_ = std::max(min_own_s_, rounds * l.sends_s);
  // Among stages with equal rounds the one furthest in front gives the tightest limit.
  if (std::ranges::none_of(round_limits_, [&](const round_limit& other) {
        return other.slope <= l.slope && other.sends_s >= l.sends_s;
      }))
    round_limits_.push_back(l);
}

double iteration_bound::of(const std::vector<std::uint32_t>& counts) const {
  return of(counts, last_rate(counts));
}

double iteration_bound::last_rate(const std::vector<std::uint32_t>& counts) const {
  double last = 0;
  for (std::size_t t = 0; t < counts.size(); ++t)
    if (counts[t] > 0) last = std::max(last, last_rate_[t]);
  return last;
}

/// Stages have whole pieces, so u must be large enough that they hold all pieces together. The
/// bisection keeps `few`, with which they do not yet: it bounds u from below.
double iteration_bound::in_pieces(const std::vector<std::uint32_t>& counts) const {
  const double last = last_rate(counts);
  const double min = of(counts, last);
  if (!table_->homogeneous() || stages_ == 1) return min;
  double few = min_own_s(counts, last), enough = few;
  while (max_pieces(counts, enough) < table_->size()) few = enough, enough *= 1.1;
  constexpr int halvings = 6;
  for (int i = 0; i < halvings && few < enough; ++i) {
    const double mid = (few + enough) / 2;
    (max_pieces(counts, mid) < table_->size() ? few : enough) = mid;
  }
  return std::max(min, from(counts, last, few));
}

/// The most pieces that all stages can have together if u is `own`; the last one recomputes nothing
/// and can have more. Larger ranges take longer, so each type's number is found by bisection.
std::uint32_t iteration_bound::max_pieces(const std::vector<std::uint32_t>& counts,
                                          double own) const {
  const auto size = table_->size();
  std::uint32_t sum = 0, last_more = 0;
  for (std::size_t t = 0; t < counts.size(); ++t) {
    if (counts[t] == 0) continue;
    const auto max = [&](auto&& takes_s) {
      std::uint32_t n = 0, end = size;  // n pieces are few enough, and `end` too many
      while (n + 1 < end) (takes_s((n + end) / 2) <= own ? n : end) = (n + end) / 2;
      return n;
    };
    const auto middle = max([&](std::uint32_t n) {
      double min = never;
      for (std::uint32_t first = 0; first < 3 && first + n < size; ++first)
        min = std::min(min, own_s(table_->middle(t, first, n), stages_ - 1));
      return min;
    });
    const auto last = max([&](std::uint32_t n) { return own_s(table_->last(t, size - n), 0); });
    sum += counts[t] * middle;
    if (last > middle) last_more = std::max(last_more, last - middle);
  }
  return sum + last_more;
}

/// For a given u, the stages can have u times the sum of their rates, and S is smallest when the
/// fastest ones are full first. As a function of u that S is convex: the maximum of one line per
/// type, on which that type is the one that is partly filled. The rounds bound S from above, and so
/// u from below. S + u + tail is then smallest at that u, where two lines meet, or where the tail
/// ends.
double iteration_bound::of(const std::vector<std::uint32_t>& counts, double last_rate) const {
  return from(counts, last_rate, min_own_s(counts, last_rate));
}

/// The lower bound of u: by work, by sends and cards, and for each limit on S by rounds and each
/// line of S, where the two cross.
double iteration_bound::min_own_s(const std::vector<std::uint32_t>& counts,
                                  double last_rate) const {
  double rates = last_rate, through = 0, min = min_own_s_;
  bool first = true;
  for (const auto t : fastest_) {
    if (counts[t] == 0) continue;
    if (std::exchange(first, false)) through = rates * through_s_[t];
    const double saved = rates * through_s_[t] - through;  // of S, for each second of u
    for (const auto& l : round_limits_)
      min = std::max(min, (work_ * through_s_[t] + l.sends_s) / (l.slope + saved));
    rates += counts[t] * rate_[t];
    through += counts[t] * rate_[t] * through_s_[t];
  }
  return std::max(min, work_ / rates);
}

/// The minimum over u >= `min_own_s`, at the values where the slope can change.
double iteration_bound::from(const std::vector<std::uint32_t>& counts, double last_rate,
                             double min_own_s) const {
  double min = total_s(counts, last_rate, min_own_s);
  const auto at = [&](double u) {
    if (u > min_own_s) min = std::min(min, total_s(counts, last_rate, u));
  };
  at(hidden_below_s_);
  double rates = last_rate;
  for (const auto t : fastest_)
    if (counts[t] > 0) at(work_ / (rates += counts[t] * rate_[t]));
  return min + sends_s_;
}

/// S without sends, u and the tail, if u is `own_s`. The last stage's extra rate goes to the
/// fastest type.
double iteration_bound::total_s(const std::vector<std::uint32_t>& counts, double last_rate,
                                double own_s) const {
  double left = work_, s = own_s + tail_s(own_s), can = last_rate * own_s;
  for (const auto t : fastest_) {
    if (counts[t] == 0) continue;
    can += counts[t] * rate_[t] * own_s;
    const double w = std::min(left, can);
    s += w * through_s_[t];
    left -= w;
    can = 0;
  }
  return s;
}

}  // namespace troupe::planners
