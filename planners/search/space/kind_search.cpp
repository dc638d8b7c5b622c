#include "planners/search/space/kind_search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "planners/search/space/small_plans.hpp"
#include "planners/solver/linear_program.hpp"

namespace troupe::planners {

namespace {

constexpr double never_s = std::numeric_limits<double>::infinity();

/// Fills what is left of the GPUs with the columns that do the most in it: depth first, in the
/// order of what a column does, as long as steps are left.
class exact_fit {
 public:
  exact_fit(std::vector<std::vector<std::uint32_t>> use, std::vector<double> worth,
            std::vector<std::uint32_t> left)
      : use_{std::move(use)},
        worth_{std::move(worth)},
        left_{std::move(left)},
        now_(worth_.size()),
        best_(worth_.size()),
        order_(worth_.size()) {
    std::iota(order_.begin(), order_.end(), 0U);
    std::ranges::stable_sort(order_, std::greater{}, [&](auto i) { return worth_[i]; });
    add(0, 0);
  }
  const std::vector<std::uint32_t>& best() const { return best_; }
  std::uint64_t steps() const { return max_steps - steps_; }

 private:
  static constexpr std::uint64_t max_steps = 3000;

  void add(std::size_t at, double worth) {
    if (worth > best_worth_) best_worth_ = worth, best_ = now_;
    if (at == order_.size() || steps_ == 0) return;
    --steps_;
    const auto i = order_[at];
    std::uint32_t room = worth_[i] > 0 ? 64 : 0;
    for (std::size_t l = 0; l < left_.size(); ++l)
      if (use_[i][l] > 0) room = std::min(room, left_[l] / use_[i][l]);
    for (auto n = room + 1; n-- > 0;) {
      take(i, n);
      add(at + 1, worth + n * worth_[i]);
      give(i, n);
    }
  }
  void take(std::size_t i, std::uint32_t n) {
    now_[i] += n;
    for (std::size_t l = 0; l < left_.size(); ++l) left_[l] -= n * use_[i][l];
  }
  void give(std::size_t i, std::uint32_t n) {
    now_[i] -= n;
    for (std::size_t l = 0; l < left_.size(); ++l) left_[l] += n * use_[i][l];
  }

  std::vector<std::vector<std::uint32_t>> use_;  // by column and limit
  std::vector<double> worth_;
  std::vector<std::uint32_t> left_;
  std::vector<std::uint32_t> now_, best_;
  std::vector<std::size_t> order_;
  double best_worth_ = 0;
  std::uint64_t steps_ = max_steps;
};

}  // namespace

kind_search::kind_search(floor_table& floors, const space_room& room, best_plans& best,
                         planning_budget& budget)
    : floors_{floors}, problem_{floors.problem()}, room_{room}, best_{best}, budget_{budget} {}

bool kind_search::spend() {
  const auto now = units_ + best_.units();
  const auto units = now - spent_;
  spent_ = now;
  return budget_.spend(units);
}

void kind_search::run(const alike_search& alike) {
  spent_ = best_.units();
  std::vector<ranked_cut> cuts;
  const auto add = [&](std::size_t rows_index, const std::vector<std::uint32_t>& firsts) {
    const bool known = std::ranges::any_of(cuts, [&](const ranked_cut& c) {
      return c.rows_index == rows_index && c.firsts == firsts;
    });
    if (!known) cuts.push_back({rows_index, firsts, 0});
  };
  for (const auto& v : best_.all()) {
    const auto at = std::ranges::find(problem_.rows, v.plan.rows) - problem_.rows.begin();
    add(static_cast<std::size_t>(at), v.plan.firsts);
  }
  constexpr std::size_t max_cuts = 120;
  for (const auto& c : alike.cuts()) {
    if (cuts.size() >= max_cuts) break;
    add(c.rows_index, c.firsts);
  }
  for (const auto& c : cuts) {
    try_cut(c, alike.prices(c.rows_index));
    if (!spend()) return;
  }
  std::vector<space_plan> tried;
  for (int rounds = 0; rounds < 12 && spend(); ++rounds) {
    const auto& all = best_.all();
    const auto next = std::ranges::find_if(all, [&](const valued_plan& v) {
      return std::ranges::none_of(tried, [&](const space_plan& t) { return are_alike(t, v.plan); });
    });
    if (next == all.end() || next - all.begin() >= 4) break;
    tried.push_back(next->plan);
    const auto at = std::ranges::find(problem_.rows, tried.back().rows) - problem_.rows.begin();
    move(tried.back(), alike.prices(static_cast<std::size_t>(at)));
  }
  if (!best_.all().empty()) offer_orders(best_, space_plan{best_.all().front().plan});
}

kind_search::cut_columns kind_search::columns_of(const ranked_cut& cut,
                                                 const std::vector<std::vector<double>>& prices) {
  cut_columns out{cut.rows_index, cut.firsts, {}};
  const auto m = problem_.microbatches(problem_.rows[cut.rows_index]);
  const auto pipelines = best_.all().empty() ? 1 : best_.all().front().plan.pipelines();
  std::vector<std::uint32_t> degrees{0};
  if (!problem_.space.tensor_by_stage && !best_.all().empty())
    degrees = {problem_.classes[best_.all().front().plan.groups[0].seats[0].cls].tensor};
  for (const auto& line :
       lines_of_cut(floors_, cut.rows_index, cut.firsts, prices, degrees[0], units_))
    add_columns(out, line, std::min(pipelines, m));
  drop_dominated(out.all);
  return out;
}

void kind_search::add_columns(cut_columns& out, const cut_line& line, std::uint32_t pipelines) {
  const auto rows = problem_.rows[out.rows_index];
  const auto share = std::max(1U, problem_.microbatches(rows) / pipelines);
  double tail_s = 0, dollars = 0;
  for (std::size_t i = 0; i < out.firsts.size(); ++i) {
    const auto end = i + 1 < out.firsts.size() ? out.firsts[i + 1] : problem_.pieces;
    const auto& c = problem_.classes[line.classes[i]];
    tail_s = std::max(tail_s, floors_.times().tail_floor_s(rows, line.classes[i], out.firsts[i],
                                                           end - out.firsts[i], pipelines));
    dollars += c.tensor * problem_.kinds[c.kind].price_per_hour;
  }
  for (std::uint32_t d = 0; d < problem_.datacenters; ++d) {
    column k;
    k.max = room_.copies(d, line.classes);
    if (k.max == 0) continue;
    space_line at{rows, out.firsts, {}};
    for (const auto c : line.classes) at.seats.push_back({c, d});
    const double once = floors_.times().line_s(at, share),
                 twice = floors_.times().line_s(at, 2 * share);
    units_ += 200;
    if (!(twice < never_s)) continue;
    k.step_s = (twice - once) / share;
    k.start_s = once - (share - 1) * k.step_s + tail_s;
    k.dollars_per_hour = dollars;
    for (const auto& l : room_.limits()) {
      std::uint32_t used = 0;
      for (const auto& s : at.seats) used += room_.use(l, s);
      k.use.push_back(used);
    }
    k.seats = std::move(at.seats);
    out.all.push_back(std::move(k));
  }
}

/// A line that uses no more of anything, ends earlier, and does more micro-batches in any time.
void kind_search::drop_dominated(std::vector<column>& all) {
  std::vector<column> kept;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& a = all[i];
    const bool dominated = std::ranges::any_of(all, [&](const column& b) {
      if (&a == &b || b.start_s > a.start_s || b.step_s > a.step_s) return false;
      for (std::size_t l = 0; l < a.use.size(); ++l)
        if (b.use[l] > a.use[l]) return false;
      const bool equal = b.start_s == a.start_s && b.step_s == a.step_s && b.use == a.use;
      return !equal || &b < &a;
    });
    if (!dominated) kept.push_back(a);
  }
  all = std::move(kept);
}

double kind_search::weight(const cut_columns& c, const column& k, double seconds,
                           std::uint32_t equal_share) const {
  const double m = 1 + (seconds - k.start_s) / k.step_s;
  if (equal_share > 0) return m >= equal_share * (1 - 1e-9) ? equal_share : 0;
  return m < 1 ? 0 : std::min<double>(m, problem_.microbatches(problem_.rows[c.rows_index]));
}

/// The numbers of pipelines by column, and what they reach: micro-batches.
std::vector<double> kind_search::relaxed(const cut_columns& c, double seconds,
                                         double pipeline_price, std::uint32_t equal_share,
                                         double& reached) const {
  linear_program program;
  const auto& limits = room_.limits();
  for (const auto& l : limits) program.add_row(-linear_program::infinite, l.units);
  const bool cheap = problem_.goal != space_goal::fastest;
  const double m = problem_.microbatches(problem_.rows[c.rows_index]);
  const auto all_row =
      program.add_row(cheap ? m : -linear_program::infinite, linear_program::infinite);
  const auto gpus_row = program.add_row(
      -linear_program::infinite, problem_.max_gpus ? *problem_.max_gpus : linear_program::infinite);
  std::vector<std::size_t> at;
  reached = 0;
  for (std::size_t i = 0; i < c.all.size(); ++i) {
    const auto& k = c.all[i];
    const double w = weight(c, k, seconds, equal_share);
    if (w <= pipeline_price) continue;
    std::vector<linear_program::entry> entries{{all_row, w}};
    double gpus = 0;
    for (std::size_t l = 0; l < limits.size(); ++l)
      if (k.use[l] > 0) entries.push_back({l, static_cast<double>(k.use[l])});
    for (const auto& s : k.seats) gpus += problem_.classes[s.cls].tensor;
    entries.push_back({gpus_row, gpus});
    double cost = pipeline_price - w;
    if (cheap) cost = problem_.goal == space_goal::cheapest ? k.dollars_per_hour : gpus;
    program.add_column(std::move(entries), cost, k.max);
    at.push_back(i);
  }
  std::vector<double> n(c.all.size());
  if (at.empty()) return n;
  auto solver = linear_solver::of(program, false);
  if (!solver) return n;
  solver->relax();
  const auto x = solver->solution();
  for (std::size_t i = 0; i < at.size(); ++i) {
    n[at[i]] = std::max(0.0, x[i]);
    reached += n[at[i]] * weight(c, c.all[at[i]], seconds, equal_share);
  }
  return n;
}

void kind_search::try_cut(const ranked_cut& cut, const std::vector<std::vector<double>>& prices) {
  const auto c = columns_of(cut, prices);
  if (c.all.size() < 2) return;
  const auto m = problem_.microbatches(problem_.rows[c.rows_index]);
  if (problem_.space.own_shares) {
    for (const double price : {0.0, 0.5, 1.0, 2.0}) bisect(c, price, 0);
    return;
  }
  // Equal shares: of the numbers of pipelines that divide the micro-batches, those near the best.
  const auto near = best_.all().empty() ? m : best_.all().front().plan.pipelines();
  for (std::uint32_t share = 1; share <= m; ++share)
    if (m % share == 0 && m / share <= 2 * near && 2 * (m / share) >= near) bisect(c, 0, share);
}

void kind_search::bisect(const cut_columns& c, double pipeline_price, std::uint32_t equal_share) {
  const double m = problem_.microbatches(problem_.rows[c.rows_index]);
  double high = best_.all().empty() ? never_s : best_.all().front().value.seconds;
  if (problem_.max_s && (problem_.goal != space_goal::fastest || !(high < never_s)))
    high = *problem_.max_s;
  if (!(high < never_s)) {
    high = 0;
    for (const auto& k : c.all) high = std::max(high, k.start_s + (m - 1) * k.step_s);
  }
  double reached = 0;
  const auto try_at = [&](double seconds) {
    const auto n = relaxed(c, seconds, pipeline_price, equal_share, reached);
    units_ += 20'000 + 200 * c.all.size();
    if (reached < m * (1 - 1e-9)) return false;
    offer_rounded(c, n, seconds, equal_share);
    return true;
  };
  if (!try_at(high)) return;
  if (problem_.goal != space_goal::fastest) {
    for (const double part : {0.95, 0.9, 0.8, 0.7}) try_at(part * high);
    return;
  }
  double low = 0.8 * high;
  for (int i = 0; i < 6; ++i) {
    const double middle = (low + high) / 2;
    (try_at(middle) ? high : low) = middle;
  }
}

void kind_search::offer_rounded(const cut_columns& c, const std::vector<double>& n, double seconds,
                                std::uint32_t equal_share) {
  std::vector<std::uint32_t> whole;
  for (const double x : n) whole.push_back(static_cast<std::uint32_t>(std::floor(x + 1e-9)));
  auto filled = whole;
  fill(c, filled, seconds, equal_share);
  offer_counts(c, filled);
  // Without what fills the rest: sums of fewer pipelines are shorter.
  if (filled != whole) offer_counts(c, whole);
}

/// Uses what the rounding left of the GPUs; where the price counts, only until all micro-batches
/// are done.
void kind_search::fill(const cut_columns& c, std::vector<std::uint32_t>& n, double seconds,
                       std::uint32_t equal_share) {
  std::vector<std::uint32_t> left;
  for (const auto& l : room_.limits()) left.push_back(l.units);
  std::vector<std::vector<std::uint32_t>> use;
  std::vector<double> worth;
  double done = 0;
  for (std::size_t i = 0; i < c.all.size(); ++i) {
    for (std::size_t l = 0; l < left.size(); ++l) left[l] -= n[i] * c.all[i].use[l];
    use.push_back(c.all[i].use);
    worth.push_back(weight(c, c.all[i], seconds, equal_share));
    done += n[i] * worth.back();
  }
  if (problem_.goal == space_goal::fastest) {
    const exact_fit fit{std::move(use), std::move(worth), std::move(left)};
    units_ += 20 * fit.steps();
    for (std::size_t i = 0; i < n.size(); ++i) n[i] += fit.best()[i];
    return;
  }
  const double m = problem_.microbatches(problem_.rows[c.rows_index]);
  while (done < m) {
    std::size_t chosen = c.all.size();
    double best = 0;
    for (std::size_t i = 0; i < c.all.size(); ++i) {
      bool room = worth[i] > 0;
      for (std::size_t l = 0; l < left.size(); ++l) room = room && use[i][l] <= left[l];
      const double each = std::min(worth[i], m - done) / std::max(1e-9, c.all[i].dollars_per_hour);
      if (room && each > best) best = each, chosen = i;
    }
    if (chosen == c.all.size()) return;
    ++n[chosen], done += worth[chosen];
    for (std::size_t l = 0; l < left.size(); ++l) left[l] -= use[chosen][l];
  }
}

bool kind_search::offer_counts(const cut_columns& c, std::vector<std::uint32_t> n) {
  const auto rows = problem_.rows[c.rows_index];
  const auto m = problem_.microbatches(rows);
  auto pipelines = std::accumulate(n.begin(), n.end(), 0U);
  const auto fits = [&](std::uint32_t k) {
    return k <= m && (problem_.space.own_shares || m % k == 0);
  };
  // Too many: those with the longest steps go.
  while (pipelines > 0 && !fits(pipelines)) {
    std::size_t slowest = n.size();
    for (std::size_t i = 0; i < n.size(); ++i)
      if (n[i] > 0 && (slowest == n.size() || c.all[i].step_s > c.all[slowest].step_s)) slowest = i;
    --n[slowest], --pipelines;
  }
  std::vector<line_count> lines;
  for (std::size_t i = 0; i < n.size(); ++i)
    if (n[i] > 0) lines.push_back({c.all[i].seats, n[i]});
  // Datacenter by datacenter, as sums cross from one to the next.
  std::ranges::stable_sort(lines, {}, [](const line_count& l) { return l.seats[0].datacenter; });
  const auto plan =
      dealt_plan(floors_.times(), rows, m, c.firsts, lines, problem_.space.own_shares);
  units_ += 2000 + 100 * lines.size();
  if (!plan) return false;
  const double before = best_.best();
  return best_.offer(*plan) < before;
}

void kind_search::move(const space_plan& from, const std::vector<std::vector<double>>& prices) {
  const auto at = std::ranges::find(problem_.rows, from.rows) - problem_.rows.begin();
  auto c = columns_of({static_cast<std::size_t>(at), from.firsts, 0}, prices);
  std::vector<std::uint32_t> n(c.all.size());
  for (const auto& g : from.groups) {
    auto k = std::ranges::find(c.all, g.seats, &column::seats);
    if (k == c.all.end()) {
      column own;
      own.seats = g.seats;
      for (const auto& l : room_.limits()) {
        own.use.push_back(0);
        for (const auto& s : g.seats) own.use.back() += room_.use(l, s);
      }
      c.all.push_back(std::move(own));
      n.push_back(0);
      k = c.all.end() - 1;
    }
    n[static_cast<std::size_t>(k - c.all.begin())] += g.pipelines;
  }
  for (std::size_t i = 0; i < n.size() && spend(); ++i) {
    auto more = n;
    ++more[i];
    offer_counts(c, more);
    if (n[i] == 0) continue;
    auto fewer = n;
    --fewer[i];
    offer_counts(c, fewer);
    for (std::size_t j = 0; j < n.size(); ++j) {
      if (j == i) continue;
      auto other = fewer;
      ++other[j];
      offer_counts(c, other);
    }
  }
}

}  // namespace troupe::planners
