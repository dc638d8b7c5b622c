#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "messages/base/folds.hpp"
#include "messages/base/refuse.hpp"
#include "planners/solver/linear_program.hpp"
#include "planners/titan/titan_problem.hpp"

// Equations (5) to (11) for CBC. Most columns cannot be in a good answer: a job, or a union, has
// one for each number of GPUs. Four steps keep a decision short.
//
// 1. The relaxation is solved over few columns; others join while their reduced cost says that they
//    improve it (column generation: Gilmore and Gomory 1961). It ends with the optimum over all.
// 2. Jobs that may be merged in several ways make it fractional: half of {1, 2}, {2, 3} and {1, 3}
//    each. Rows for odd sets of jobs exclude that (Edmonds 1965): of three jobs, at most one column
//    has two or more. Then 1. again, while there are such rows that it violates.
// 3. Mostly the relaxation is integral then, and the answer. Otherwise the best answer so far is a
//    bound: a column whose reduced cost exceeds the distance between it and the relaxation is in no
//    better answer (Dantzig, Fulkerson, Johnson 1954).
// 4. Branch and bound over what is left, limited by nodes; first over the columns of the smallest
//    reduced costs, whose answer leaves few columns for the proof.

namespace troupe::planners {
namespace {

// Places of one size in one pool.
struct place_row {
  std::uint32_t pool = 0, size = 0;
  std::uint64_t places = 0;
};

// Rows that another one implies are left out: if all nodes have multiples of the next size idle,
// then places of that size are places of this one.
std::vector<place_row> place_rows(const titan_problem& p) {
  std::vector<place_row> rows;
  for (std::uint32_t i = 0; i < p.pools.size(); ++i) {
    const auto& pool = p.pools[i];
    bool implied = false;
    for (const auto size : size_classes(pool.node_gpus)) {
      std::uint64_t places = 0;
      implied = implied && std::ranges::all_of(
                               pool.idle, [&](std::uint32_t idle) { return idle % size == 0; });
      for (const auto idle : pool.idle) places += idle / size;
      if (!implied) rows.push_back({i, size, places});
      implied = true;
    }
  }
  return rows;
}

/// Three jobs, ascending.
using odd_set = std::array<std::uint32_t, 3>;

bool has_two_of(const std::vector<std::uint32_t>& jobs, const odd_set& set) {
  return std::ranges::count_if(jobs, [&](std::uint32_t job) {
           return std::ranges::find(set, job) != set.end();
         }) >= 2;
}

class titan_integer_program {
 public:
  explicit titan_integer_program(const titan_problem& p) : p_(p), rows_(place_rows(p)) {
    for (std::size_t c = 0; c < p.columns.size(); ++c) largest_ = std::max(largest_, value(c));
  }

  linear_program linear(const std::vector<std::size_t>& columns) const {
    linear_program out;
    for (std::uint32_t job = 0; job < p_.jobs; ++job) out.add_row(-linear_program::infinite, 1);
    for (const auto& row : rows_)
      out.add_row(-linear_program::infinite, static_cast<double>(row.places));
    for (std::size_t i = 0; i < odd_sets_.size(); ++i) out.add_row(-linear_program::infinite, 1);
    for (const auto c : columns) out.add_column(entries_of(c), cost(c), 1);
    return out;
  }

  /// Each column's cost less what its rows are worth: below 0, it would improve the relaxation.
  std::vector<double> reduced_costs(const std::vector<double>& row_prices) const {
    // The sets that cost something, by job.
    std::vector<std::vector<std::size_t>> priced(p_.jobs);
    const auto* set_prices = row_prices.data() + p_.jobs + rows_.size();
    for (std::size_t i = 0; i < odd_sets_.size(); ++i)
      if (set_prices[i] != 0)
        for (const auto job : odd_sets_[i]) priced[job].push_back(i);
    std::vector<std::size_t> met;
    std::vector<double> out;
    for (std::size_t c = 0; c < p_.columns.size(); ++c) {
      const auto& column = p_.columns[c];
      double reduced = cost(c);
      for (const auto job : column.jobs) reduced -= row_prices[job];
      for (std::size_t r = 0; r < rows_.size(); ++r)
        reduced -= static_cast<double>(places(column, rows_[r])) * row_prices[p_.jobs + r];
      if (column.jobs.size() > 1) {
        met.clear();
        for (const auto job : column.jobs)
          met.insert(met.end(), priced[job].begin(), priced[job].end());
        std::ranges::sort(met);
        // A set counts once, by its second job.
        for (std::size_t i = 1; i < met.size(); ++i)
          if (met[i] == met[i - 1] && (i < 2 || met[i] != met[i - 2]))
            reduced -= set_prices[met[i]];
      }
      out.push_back(reduced);
    }
    return out;
  }

  /// Adds the rows of odd sets that this solution violates; false: there are none. Any two of its
  /// unions that overlap have the sets among them.
  bool add_odd_sets(const std::vector<double>& x) {
    std::map<std::vector<std::uint32_t>, double> unions;
    for (std::size_t c = 0; c < x.size(); ++c)
      if (x[c] > violation && p_.columns[c].jobs.size() > 1) unions[p_.columns[c].jobs] += x[c];
    std::set<odd_set> violated;
    for (auto a = unions.begin(); a != unions.end(); ++a)
      for (auto b = std::next(a); b != unions.end(); ++b) {
        std::vector<std::uint32_t> jobs;
        std::ranges::set_union(a->first, b->first, std::back_inserter(jobs));
        if (jobs.size() == a->first.size() + b->first.size()) continue;
        for (std::size_t i = 0; i < jobs.size(); ++i)
          for (std::size_t j = i + 1; j < jobs.size(); ++j)
            for (std::size_t k = j + 1; k < jobs.size(); ++k)
              if (const odd_set set{jobs[i], jobs[j], jobs[k]};
                  part_of(unions, set) > 1 + violation)
                violated.insert(set);
      }
    odd_sets_.insert(odd_sets_.end(), violated.begin(), violated.end());
    return !violated.empty();
  }

  const std::vector<odd_set>& odd_sets() const { return odd_sets_; }

  /// The set's row: which of these columns have two or more of its jobs.
  std::vector<double> row_of(const odd_set& set, const std::vector<std::size_t>& columns) const {
    return mapped(columns,
                  [&](std::size_t c) { return has_two_of(p_.columns[c].jobs, set) ? 1.0 : 0.0; });
  }

  /// To begin with: each job's columns of the largest value, and of the largest value per GPU.
  std::vector<std::size_t> first_columns() const {
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::pair<std::size_t, std::size_t>> best;
    for (std::size_t c = 0; c < p_.columns.size(); ++c) {
      const auto& column = p_.columns[c];
      if (column.jobs.size() > 1) continue;
      const auto [at, fresh] = best.try_emplace({column.jobs[0], column.pool}, c, c);
      auto& [by_value, by_gpu] = at->second;
      const auto per_gpu = [&](std::size_t i) { return value(i) / p_.columns[i].gpus; };
      if (value(c) > value(by_value)) by_value = c;
      if (per_gpu(c) > per_gpu(by_gpu)) by_gpu = c;
    }
    std::set<std::size_t> out;
    for (const auto& [key, pair] : best) out.insert({pair.first, pair.second});
    return {out.begin(), out.end()};
  }

  std::size_t columns() const { return p_.columns.size(); }
  std::uint32_t jobs() const { return p_.jobs; }

  double value(std::size_t c) const { return p_.columns[c].value; }
  // Relative to the largest value: CBC's tolerances are absolute, and progress a second is about
  // 1e-4.
  double cost(std::size_t c) const { return -value(c) / largest_; }
  double largest() const { return largest_; }

  // By value per GPU, each that still finds its jobs and places; columns with `first` before the
  // others. A feasible answer.
  std::vector<double> greedy(const std::vector<double>& first) const {
    std::vector<std::size_t> order(p_.columns.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::greater{}, [&](std::size_t c) {
      return std::pair(std::round(first[c] * 1e6), value(c) / p_.columns[c].gpus);
    });
    std::vector<double> x(p_.columns.size(), 0.0);
    std::vector<bool> has_gpus(p_.jobs, false);
    auto left = rows_;
    for (const auto c : order) {
      const auto& column = p_.columns[c];
      const bool fits =
          std::ranges::none_of(column.jobs, [&](std::uint32_t job) { return has_gpus[job]; }) &&
          std::ranges::all_of(
              left, [&](const place_row& row) { return places(column, row) <= row.places; });
      if (!fits) continue;
      x[c] = 1;
      for (const auto job : column.jobs) has_gpus[job] = true;
      for (auto& row : left) row.places -= places(column, row);
    }
    return x;
  }

  std::vector<linear_program::entry> entries_of(std::size_t c) const {
    const auto& column = p_.columns[c];
    std::vector<linear_program::entry> entries;
    for (const auto job : column.jobs) entries.push_back({job, 1});
    for (std::size_t r = 0; r < rows_.size(); ++r)
      if (const auto needed = places(column, rows_[r]); needed > 0)
        entries.push_back({p_.jobs + r, static_cast<double>(needed)});
    if (column.jobs.size() > 1)
      for (std::size_t i = 0; i < odd_sets_.size(); ++i)
        if (has_two_of(column.jobs, odd_sets_[i]))
          entries.push_back({p_.jobs + rows_.size() + i, 1});
    return entries;
  }

  titan_answer answer(const std::vector<double>& x) const {
    titan_answer out;
    for (std::size_t c = 0; c < x.size(); ++c) {
      if (x[c] < 0.5) continue;
      out.taken.push_back(c);
      out.objective += value(c);
    }
    return out;
  }

 private:
  static double part_of(const std::map<std::vector<std::uint32_t>, double>& unions,
                        const odd_set& set) {
    double sum = 0;
    for (const auto& [jobs, x] : unions) sum += has_two_of(jobs, set) ? x : 0;
    return sum;
  }

  static std::uint64_t places(const titan_column& c, const place_row& row) {
    return c.pool == row.pool && c.gpus >= row.size ? c.gpus / row.size : 0;
  }

  static constexpr double violation = 1e-6;

  const titan_problem& p_;
  std::vector<place_row> rows_;
  std::vector<odd_set> odd_sets_;
  double largest_ = 0;
};

bool is_integral(const std::vector<double>& x) {
  return std::ranges::all_of(x, [](double v) { return std::abs(v - std::round(v)) < 1e-7; });
}

/// The relaxation's optimum over all columns; costs are relative to the largest value.
struct relaxation {
  std::vector<double> x;
  double objective = 0;
  std::vector<double> reduced_costs;
};

expected<relaxation> relax(titan_integer_program& p) {
  constexpr double tolerance = 1e-9;
  const auto max_joining = std::max<std::size_t>(50, 2 * std::size_t{p.jobs()});
  auto chosen = p.first_columns();
  std::vector<bool> is_chosen(p.columns());
  for (const auto c : chosen) is_chosen[c] = true;
  auto solver = linear_solver::of(p.linear(chosen), false);
  if (!solver) return refuse(solver.error());
  for (;;) {
    solver->relax();
    relaxation out{std::vector<double>(p.columns(), 0.0), solver->objective(),
                   p.reduced_costs(solver->row_prices())};
    std::vector<std::pair<double, std::size_t>> joining;
    for (std::size_t c = 0; c < p.columns(); ++c)
      if (!is_chosen[c] && out.reduced_costs[c] < -tolerance)
        joining.emplace_back(out.reduced_costs[c], c);
    std::ranges::sort(joining);
    joining.resize(std::min(joining.size(), max_joining));
    for (const auto& [cost, c] : joining) {
      chosen.push_back(c);
      is_chosen[c] = true;
      if (auto ok = solver->add_column(p.entries_of(c), p.cost(c), 1); !ok)
        return refuse(ok.error());
    }
    if (!joining.empty()) continue;
    const auto x = solver->solution();
    for (std::size_t i = 0; i < chosen.size(); ++i) out.x[chosen[i]] = x[i];
    const auto sets = p.odd_sets().size();
    if (is_integral(out.x) || !p.add_odd_sets(out.x)) return out;
    for (auto i = sets; i < p.odd_sets().size(); ++i)
      if (auto ok =
              solver->add_row(p.row_of(p.odd_sets()[i], chosen), -linear_program::infinite, 1);
          !ok)
        return refuse(ok.error());
  }
}

/// How much larger than the answer's the objective of a better one can be.
double distance_of(const titan_integer_program& p, const titan_answer& best) {
  return (best.bound - best.objective) / p.largest();
}

/// Branch and bound over the columns whose reduced costs are at most `limit`, and that a better
/// answer than `best` can have. Improves `best`, and its bound if no other column can be in a
/// better answer. False: the search found nothing within its limits.
bool search(const titan_integer_program& p, const relaxation& relaxed, double limit,
            const titan_limits& limits, titan_answer& best) {
  constexpr double tolerance = 1e-9;
  const double max_cost = std::min(limit, distance_of(p, best)) + tolerance;
  std::vector<std::size_t> left;
  std::vector<double> start;
  for (std::size_t c = 0; c < p.columns(); ++c) {
    const bool taken = std::ranges::binary_search(best.taken, c);
    if (!taken && relaxed.reduced_costs[c] > max_cost) continue;
    left.push_back(c);
    start.push_back(taken ? 1 : 0);
  }
  search_limits l;
  l.relative_gap = limits.gap;
  l.max_nodes = limits.max_nodes;
  l.min_improvement = 1e-12;
  auto solver = linear_solver::of(p.linear(left), true);
  if (!solver) return false;
  solver->relax();
  const auto found = solver->search(l, {{std::move(start), -best.objective / p.largest()}});
  if (!found) return false;
  std::vector<double> x(p.columns(), 0.0);
  for (std::size_t i = 0; i < left.size(); ++i) x[left[i]] = found->x[i];
  if (auto other = p.answer(x); other.objective > best.objective) {
    other.bound = best.bound;
    best = std::move(other);
  }
  if (distance_of(p, best) <= limit)
    best.bound = std::max(best.objective, std::min(best.bound, -found->bound * p.largest()));
  return true;
}

titan_answer solve_usable(const titan_problem& problem, const titan_limits& limits) {
  constexpr std::size_t first_searched = 170;  // columns
  if (problem.columns.empty()) return {};
  titan_integer_program p(problem);
  const auto optimum = relax(p);
  // By value per GPU alone, without a proof of how good it is.
  if (!optimum) return p.answer(p.greedy(std::vector<double>(p.columns(), 0.0)));
  const auto& relaxed = *optimum;
  if (is_integral(relaxed.x)) {
    auto out = p.answer(relaxed.x);
    out.bound = out.objective;
    return out;
  }
  auto best = p.answer(p.greedy(relaxed.x));
  best.bound = -relaxed.objective * p.largest();
  if (best.gap() <= limits.gap) return best;
  auto costs = relaxed.reduced_costs;
  std::ranges::sort(costs);
  for (const auto count : {first_searched, costs.size()}) {
    const double limit = costs[std::min(count, costs.size()) - 1];
    if (!search(p, relaxed, limit, limits, best) || distance_of(p, best) <= limit) break;
  }
  return best;
}

bool is_usable(const titan_column& c) {
  return c.value > 0 && linear_program::takes(c.value);
}

}  // namespace

// A job of which nothing but impossible speeds is known goes on without a column.
titan_answer solve_titan_program(const titan_problem& problem, const titan_limits& limits) {
  if (std::ranges::all_of(problem.columns, is_usable)) return solve_usable(problem, limits);
  auto usable = problem;
  usable.columns.clear();
  std::vector<std::size_t> at;
  for (std::size_t c = 0; c < problem.columns.size(); ++c)
    if (is_usable(problem.columns[c])) {
      usable.columns.push_back(problem.columns[c]);
      at.push_back(c);
    }
  auto out = solve_usable(usable, limits);
  for (auto& c : out.taken) c = at[c];
  return out;
}

}  // namespace troupe::planners
