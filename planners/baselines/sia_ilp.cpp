// Sia's integer program (SOSP 2023, section 3.4): minimize the cost of all jobs, where each has at
// most one configuration and each pool its GPUs. Relative to no GPUs a choice gains lambda_n minus
// its cost:
//
//   maximize sum of gain_c x_c   with   sum over the choices c of group g of x_c <= jobs_g,
//                                       sum over the choices c of pool p of gpus_c x_c <= room_p,
//   x integer: jobs of the group that get the choice.
//
// Equal jobs share columns (sia_group), without loss: a solution is a number of jobs per choice.
// Three steps keep a round short. The relaxation is mostly integral; if not, a rounded solution
// within the gap ends the search; if not, reduced costs fix the columns that no better solution
// would change, and branch and bound runs over the others, limited by nodes, not by time, so that
// it is deterministic.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "messages/base/refuse.hpp"
#include "planners/baselines/sia.hpp"
#include "planners/solver/linear_program.hpp"

namespace troupe::planners {
namespace {

// Columns are choices; rows are the groups, then the pools. The whole program, or its undecided
// part.
struct integer_program {
  struct column {
    std::size_t group, choice;
    double gpus;
    double gain;  // compared to no GPUs
  };
  const sia_problem& problem;
  std::vector<column> columns;
  std::vector<double> jobs, room;  // the rows' right-hand sides: by group, by pool

  integer_program(const sia_problem& p, const sia_options& o) : problem(p) {
    for (std::size_t g = 0; g < p.groups.size(); ++g) {
      const auto& group = p.groups[g];
      jobs.push_back(static_cast<double>(group.jobs.size()));
      for (std::size_t c = 0; c < group.choices.size(); ++c) {
        const auto& x = group.choices[c];
        // A measured speed is none: the job is placed by its other choices, if any.
        if (!linear_program::takes(o.unassigned - x.cost)) continue;
        columns.push_back({g, c, static_cast<double>(x.how.gpus()), o.unassigned - x.cost});
      }
    }
    for (const auto& p_ : p.pools) room.push_back(p_.capacity);
  }

  std::size_t pool(const column& c) const { return problem.groups[c.group].choices[c.choice].pool; }

  linear_program linear() const {
    linear_program p;
    for (const auto& upper : {jobs, room})
      for (const double u : upper) p.add_row(-linear_program::infinite, u);
    for (const auto& c : columns)
      p.add_column({{c.group, 1}, {jobs.size() + pool(c), c.gpus}}, -c.gain, jobs[c.group]);
    return p;
  }

  // Rounds `x` to an integral solution: its floor, then greedily by gain per GPU.
  std::vector<double> rounded(const std::vector<double>& x) const {
    std::vector<double> out(columns.size());
    auto room_left = room, jobs_left = jobs;
    const auto add = [&](std::size_t i, double max) {
      const auto& c = columns[i];
      auto& left = room_left[pool(c)];
      const double k =
          std::max(0.0, std::min({max, jobs_left[c.group], std::floor(left / c.gpus)}));
      out[i] += k;
      left -= k * c.gpus;
      jobs_left[c.group] -= k;
    };
    const auto fraction = [&](std::size_t i) { return x[i] - std::floor(x[i] + tolerance); };
    for (std::size_t i = 0; i < columns.size(); ++i) add(i, std::floor(x[i] + tolerance));
    std::vector<std::size_t> order(columns.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::greater{}, [&](std::size_t i) {
      return std::pair(fraction(i) > tolerance, columns[i].gain / columns[i].gpus);
    });
    for (const auto i : order) add(i, jobs[columns[i].group]);
    return out;
  }

  double objective(const std::vector<double>& x) const {
    double sum = 0;
    for (std::size_t i = 0; i < columns.size(); ++i) sum -= columns[i].gain * x[i];
    return sum;
  }

  // Without the columns whose value is fixed: their jobs and GPUs are subtracted.
  integer_program without(const std::vector<bool>& known, const std::vector<double>& x) const {
    integer_program rest = *this;
    rest.columns.clear();
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const auto& c = columns[i];
      if (!known[i]) {
        rest.columns.push_back(c);
        continue;
      }
      rest.jobs[c.group] -= x[i];
      rest.room[pool(c)] -= x[i] * c.gpus;
    }
    return rest;
  }

  static constexpr double tolerance = 1e-6;
};

bool whole(const std::vector<double>& x) {
  return std::ranges::all_of(
      x, [](double v) { return std::abs(v - std::round(v)) < integer_program::tolerance; });
}

// The LP relaxation of a program.
struct relaxation {
  linear_solver solver;
  std::vector<double> x;
  double bound = 0;

  static expected<relaxation> of(const integer_program& p) {
    auto solver = linear_solver::of(p.linear(), true);
    if (!solver) return refuse(solver.error());
    solver->relax();
    auto x = solver->solution();
    const double bound = solver->objective();
    return relaxation{std::move(*solver), std::move(x), bound};
  }
};

// Fixes columns by their reduced costs: those that have this value in every solution better than
// `best`. Moving a column off its bound by one job worsens the relaxation by its reduced cost;
// where that exceeds the distance to the best known solution, no better one does it.
std::vector<bool> decided(const integer_program& p, const relaxation& lp, double best) {
  const auto reduced = lp.solver.reduced_costs();
  std::vector<bool> known(p.columns.size());
  for (std::size_t i = 0; i < known.size(); ++i) {
    const bool at_bound = lp.x[i] < integer_program::tolerance ||
                          lp.x[i] > p.jobs[p.columns[i].group] - integer_program::tolerance;
    known[i] = at_bound && std::abs(reduced[i]) > best - lp.bound + 1e-9;
  }
  return known;
}

std::vector<double> branch_and_bound(const integer_program& p, const relaxation& lp,
                                     std::vector<double> best, double gap, const sia_options& o) {
  const double objective = p.objective(best);
  const auto found = lp.solver.search({gap, 0, o.max_nodes}, {{best, objective}});
  return found && p.objective(found->x) < objective ? found->x : best;
}

expected<std::vector<double>> solve(const integer_program& p, double constant,
                                    const sia_options& o) {
  const auto relaxed = relaxation::of(p);
  if (!relaxed) return refuse(relaxed.error());
  const auto& lp = *relaxed;
  if (whole(lp.x)) return lp.x;
  auto best = p.rounded(lp.x);
  const double gap = o.gap * std::abs(constant + lp.bound);  // relative to the total cost
  if (p.objective(best) - lp.bound <= gap) return best;

  // Reduced costs fix most columns: search over the others.
  const auto known = decided(p, lp, p.objective(best));
  const auto rest = p.without(known, lp.x);
  std::vector<double> start;
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (!known[i]) start.push_back(best[i]);
    if (known[i] && std::abs(best[i] - lp.x[i]) > 0.5) return branch_and_bound(p, lp, best, gap, o);
  }
  const auto smaller = relaxation::of(rest);
  if (!smaller) return refuse(smaller.error());
  const auto found = branch_and_bound(rest, *smaller, std::move(start), gap, o);
  for (std::size_t i = 0, k = 0; i < known.size(); ++i) best[i] = known[i] ? lp.x[i] : found[k++];
  return best;
}

}  // namespace

sia_answer solve_sia(const sia_problem& problem, const sia_options& options) {
  const integer_program p(problem, options);
  sia_answer answer;
  for (const auto& g : problem.groups) {
    answer.taken.emplace_back(g.choices.size());
    answer.cost += options.unassigned * static_cast<double>(g.jobs.size());
  }
  if (p.columns.empty()) return answer;
  const auto x = solve(p, answer.cost, options);
  if (!x) {
    answer.unsolved = x.error();
    return answer;
  }
  for (std::size_t i = 0; i < x->size(); ++i) {
    const auto& c = p.columns[i];
    const double jobs = std::round((*x)[i]);
    answer.taken[c.group][c.choice] = static_cast<std::uint32_t>(jobs);
    answer.cost -= c.gain * jobs;
  }
  return answer;
}

}  // namespace troupe::planners
