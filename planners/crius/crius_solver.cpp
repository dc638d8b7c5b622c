// The yardstick of crius-solver: an integer program over the Cells of all jobs, solved by CBC
// (COIN-OR).

#include <algorithm>
#include <cmath>
#include <cstddef>

#include <CbcModel.hpp>
#include <OsiClpSolverInterface.hpp>

#include "planners/crius/crius_search.hpp"

namespace troupe::planners {

namespace {

struct assignment_column {
  std::size_t job = 0, choice = 0;
};

}  // namespace

std::vector<std::vector<std::uint32_t>> solve_assignment(
    const std::vector<std::vector<cell_choice>>& jobs, const std::vector<std::uint32_t>& counts,
    const std::vector<std::uint32_t>& capacity) {
  std::vector<assignment_column> columns;
  std::vector<int> starts, rows;
  std::vector<double> values, lower, upper, cost, row_lower, row_upper;
  std::vector<std::vector<std::uint32_t>> taken;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    taken.emplace_back(jobs[i].size());
    row_upper.push_back(counts[i]);
    for (std::size_t k = 0; k < jobs[i].size(); ++k) {
      const auto& x = jobs[i][k];
      starts.push_back(static_cast<int>(rows.size()));
      rows.push_back(static_cast<int>(i));
      values.push_back(1);
      rows.push_back(static_cast<int>(jobs.size() + x.pool));
      values.push_back(x.gpus);
      lower.push_back(0);
      upper.push_back(counts[i]);
      cost.push_back(-x.value);
      columns.push_back({i, k});
    }
  }
  if (columns.empty()) return taken;
  starts.push_back(static_cast<int>(rows.size()));
  for (const auto n : capacity) row_upper.push_back(n);
  OsiClpSolverInterface solver;
  solver.messageHandler()->setLogLevel(0);
  row_lower.assign(row_upper.size(), -solver.getInfinity());
  solver.loadProblem(static_cast<int>(columns.size()), static_cast<int>(row_upper.size()),
                     starts.data(), rows.data(), values.data(), lower.data(), upper.data(),
                     cost.data(), row_lower.data(), row_upper.data());
  for (int i = 0; i < static_cast<int>(columns.size()); ++i) solver.setInteger(i);
  constexpr double gap = 1e-3;
  constexpr int max_nodes = 50;
  CbcModel model(solver);
  model.setLogLevel(0);
  model.messageHandler()->setLogLevel(0);
  model.setAllowableFractionGap(gap);
  model.setMaximumNodes(max_nodes);
  model.branchAndBound();
  const double* x = model.bestSolution();
  if (x == nullptr) return taken;
  for (std::size_t i = 0; i < columns.size(); ++i)
    taken[columns[i].job][columns[i].choice] = static_cast<std::uint32_t>(std::lround(x[i]));
  return taken;
}

}  // namespace troupe::planners
