// Gavel's linear programs, solved by Clp (COIN-OR).

#include <algorithm>

#include <OsiClpSolverInterface.hpp>

#include "planners/baselines/gavel.hpp"

namespace troupe::planners {
namespace {

/// Rows: one a job, one a type, and for max-min one a job more. Columns: X[job][type] where the job
/// can run, then the least throughput.
struct allocation_program {
  struct entry {
    int row;
    double value;
  };
  std::vector<std::vector<entry>> columns;
  std::vector<double> cost, row_lower, row_upper;
  std::vector<std::pair<std::size_t, std::size_t>> names;

  void solve(OsiClpSolverInterface& solver) const {
    std::vector<int> starts, rows;
    std::vector<double> values, lower(columns.size(), 0.0),
        upper(columns.size(), solver.getInfinity());
    for (const auto& c : columns) {
      starts.push_back(static_cast<int>(rows.size()));
      for (const auto& e : c) rows.push_back(e.row), values.push_back(e.value);
    }
    starts.push_back(static_cast<int>(rows.size()));
    auto least = row_lower, most = row_upper;
    for (auto& v : least)
      if (v < 0) v = -solver.getInfinity();
    for (auto& v : most)
      if (v < 0) v = solver.getInfinity();
    solver.messageHandler()->setLogLevel(0);
    solver.loadProblem(static_cast<int>(columns.size()), static_cast<int>(most.size()),
                       starts.data(), rows.data(), values.data(), lower.data(), upper.data(),
                       cost.data(), least.data(), most.data());
    solver.initialSolve();
  }
};

constexpr double unbounded = -1;

/// Throughput if the job had each type in proportion to what there is of it.
double equal_share_rate(const gavel_job& j, const std::vector<double>& capacity) {
  double all = 0, sum = 0;
  for (std::size_t t = 0; t < capacity.size(); ++t) {
    all += capacity[t];
    sum += capacity[t] * j.rates[t];
  }
  return all > 0 ? sum / all : 0;
}

}  // namespace

std::vector<std::vector<double>> gavel_allocation(const std::vector<gavel_job>& jobs,
                                                  const std::vector<double>& capacity,
                                                  gavel_objective objective) {
  allocation_program p;
  const auto job_rows = jobs.size(), type_rows = capacity.size();
  const bool fair = objective == gavel_objective::max_min;
  for (const auto& j : jobs) p.row_lower.push_back(unbounded), p.row_upper.push_back(j.weight);
  for (const double n : capacity) p.row_lower.push_back(unbounded), p.row_upper.push_back(n);
  for (std::size_t i = 0; fair && i < jobs.size(); ++i)
    p.row_lower.push_back(0), p.row_upper.push_back(unbounded);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const auto& j = jobs[i];
    const double own = fair ? equal_share_rate(j, capacity) : *std::ranges::max_element(j.rates);
    for (std::size_t t = 0; t < capacity.size(); ++t) {
      if (j.rates[t] <= 0) continue;
      const double rate = j.rates[t] / own;
      auto& c = p.columns.emplace_back();
      c.push_back({static_cast<int>(i), 1});
      c.push_back({static_cast<int>(job_rows + t), j.gpus});
      if (fair) c.push_back({static_cast<int>(job_rows + type_rows + i), rate * j.gpus / j.weight});
      p.cost.push_back(fair ? 0 : -rate);
      p.names.emplace_back(i, t);
    }
  }
  if (fair) {
    auto& least = p.columns.emplace_back();
    for (std::size_t i = 0; i < jobs.size(); ++i)
      if (*std::ranges::max_element(jobs[i].rates) > 0)
        least.push_back({static_cast<int>(job_rows + type_rows + i), -1});
    p.cost.push_back(-1);
  }
  std::vector<std::vector<double>> out(jobs.size(), std::vector<double>(capacity.size()));
  if (p.names.empty()) return out;
  OsiClpSolverInterface solver;
  p.solve(solver);
  const double* x = solver.getColSolution();
  for (std::size_t k = 0; k < p.names.size(); ++k) {
    const auto [i, t] = p.names[k];
    out[i][t] = std::max(0.0, x[k]) / jobs[i].weight;
  }
  return out;
}

}  // namespace troupe::planners
