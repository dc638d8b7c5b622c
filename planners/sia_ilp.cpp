// Sia's integer program, solved by CBC (COIN-OR).

#include <algorithm>
#include <cmath>
#include <numeric>

#include <CbcModel.hpp>
#include <CoinPackedMatrix.hpp>
#include <OsiClpSolverInterface.hpp>

#include "planners/sia.hpp"

namespace troupe::planners {
namespace {

// Columns are the choices of all groups in order; rows are the groups, then the pools.
struct program {
  struct column {
    std::size_t group, choice;
    double gain;  // over getting nothing
  };
  std::vector<column> columns;
  const sia_problem& problem;
  double constant = 0;  // what it costs when nobody gets anything

  program(const sia_problem& p, const sia_options& o) : problem(p) {
    for (std::size_t g = 0; g < p.groups.size(); ++g) {
      const auto& group = p.groups[g];
      constant += o.unassigned * static_cast<double>(group.jobs.size());
      for (std::size_t c = 0; c < group.choices.size(); ++c) {
        columns.push_back({g, c, o.unassigned - group.choices[c].cost});
      }
    }
  }

  const sia_choice& choice(const column& c) const {
    return problem.groups[c.group].choices[c.choice];
  }
  double jobs(const column& c) const {
    return static_cast<double>(problem.groups[c.group].jobs.size());
  }

  void load(OsiClpSolverInterface& solver) const {
    const auto groups = static_cast<int>(problem.groups.size());
    const auto rows = groups + static_cast<int>(problem.pools.size());
    const auto n = static_cast<int>(columns.size());
    std::vector<int> starts, index;
    std::vector<double> value, lower(columns.size(), 0.0), upper, cost;
    for (const auto& c : columns) {
      starts.push_back(static_cast<int>(index.size()));
      index.push_back(static_cast<int>(c.group));
      value.push_back(1);
      index.push_back(groups + static_cast<int>(choice(c).pool));
      value.push_back(choice(c).how.gpus());
      upper.push_back(jobs(c));
      cost.push_back(-c.gain);
    }
    starts.push_back(static_cast<int>(index.size()));
    std::vector<double> row_lower(static_cast<std::size_t>(rows), -solver.getInfinity()), row_upper;
    for (const auto& g : problem.groups) row_upper.push_back(static_cast<double>(g.jobs.size()));
    for (const auto& p : problem.pools) row_upper.push_back(p.capacity);
    solver.loadProblem(n, rows, starts.data(), index.data(), value.data(), lower.data(),
                       upper.data(), cost.data(), row_lower.data(), row_upper.data());
    for (int i = 0; i < n; ++i) solver.setInteger(i);
  }

  // A whole solution near `x`: its floor, then what still fits, by gain a GPU.
  std::vector<double> rounded(const double* x) const {
    std::vector<double> out(columns.size()), left;
    std::vector<double> jobs_left;
    for (const auto& p : problem.pools) left.push_back(p.capacity);
    for (const auto& g : problem.groups) jobs_left.push_back(static_cast<double>(g.jobs.size()));
    const auto add = [&](std::size_t i, double most) {
      const auto& c = columns[i];
      const double gpus = choice(c).how.gpus();
      auto& room = left[choice(c).pool];
      const double k = std::max(0.0, std::min({most, jobs_left[c.group], std::floor(room / gpus)}));
      out[i] += k;
      room -= k * gpus;
      jobs_left[c.group] -= k;
    };
    for (std::size_t i = 0; i < columns.size(); ++i) add(i, std::floor(x[i] + 1e-6));
    std::vector<std::size_t> order(columns.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::greater{}, [&](std::size_t i) {
      return std::pair(x[i] - std::floor(x[i] + 1e-6) > 1e-6,
                       columns[i].gain / choice(columns[i]).how.gpus());
    });
    for (const auto i : order) add(i, jobs(columns[i]));
    return out;
  }

  double objective(const std::vector<double>& x) const {
    double sum = 0;
    for (std::size_t i = 0; i < columns.size(); ++i) sum -= columns[i].gain * x[i];
    return sum;
  }
};

bool whole(const double* x, std::size_t n) {
  return std::all_of(x, x + n, [](double v) { return std::abs(v - std::round(v)) < 1e-6; });
}

std::vector<double> branch_and_bound(OsiClpSolverInterface& solver, std::vector<double> start,
                                     const program& p, const sia_options& o) {
  CbcModel model(solver);
  model.setLogLevel(0);
  model.messageHandler()->setLogLevel(0);
  model.setAllowableFractionGap(o.gap);
  model.setMaximumNodes(o.most_nodes);
  model.setBestSolution(start.data(), static_cast<int>(start.size()), p.objective(start), true);
  model.branchAndBound();
  const double* best = model.bestSolution();
  if (best == nullptr) return start;
  std::vector<double> x(best, best + start.size());
  return p.objective(x) <= p.objective(start) ? x : start;
}

}  // namespace

sia_answer solve_sia(const sia_problem& problem, const sia_options& options) {
  const program p(problem, options);
  sia_answer answer;
  for (const auto& g : problem.groups) answer.taken.emplace_back(g.choices.size());
  answer.cost = p.constant;
  if (p.columns.empty()) return answer;

  OsiClpSolverInterface solver;
  solver.messageHandler()->setLogLevel(0);
  solver.setHintParam(OsiDoReducePrint, true, OsiHintTry);
  p.load(solver);
  solver.initialSolve();
  std::vector<double> x(solver.getColSolution(), solver.getColSolution() + p.columns.size());
  if (!whole(x.data(), x.size())) {
    auto start = p.rounded(x.data());
    const double bound = solver.getObjValue();
    const double least = p.constant + bound;  // of the whole objective
    const bool near = p.objective(start) - bound <= options.gap * std::abs(least);
    x = near ? std::move(start) : branch_and_bound(solver, std::move(start), p, options);
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto& c = p.columns[i];
    answer.taken[c.group][c.choice] = static_cast<std::uint32_t>(std::lround(x[i]));
  }
  answer.cost = p.constant;
  for (std::size_t i = 0; i < x.size(); ++i) answer.cost -= p.columns[i].gain * std::round(x[i]);
  return answer;
}

}  // namespace troupe::planners
