#include "planners/solver/linear_program.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <CbcModel.hpp>
#include <CoinPackedVector.hpp>
#include <OsiClpSolverInterface.hpp>

#include "messages/base/folds.hpp"
#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::planners {

namespace {

expected<void> check_number(double v, const char* what) {
  if (linear_program::takes(v)) return {};
  return refuse(reason::kind::invalid,
                "a {} of a linear program is {}, expected a finite number from -{:g} to {:g}", what,
                v, linear_program::largest, linear_program::largest);
}

expected<void> check_bounds(double lower, double upper) {
  for (const double v : {lower, upper})
    if (std::abs(v) != linear_program::infinite)
      if (auto ok = check_number(v, "bound"); !ok) return ok;
  return {};
}

bool names_rows_once(const std::vector<linear_program::entry>& entries) {
  auto rows = mapped(entries, &linear_program::entry::row);
  std::ranges::sort(rows);
  return std::ranges::adjacent_find(rows) == rows.end();
}

expected<void> check_column(const std::vector<linear_program::entry>& entries, double cost,
                            double upper) {
  // CLP would add the values up in a whole program, and throw at a later column.
  TROUPE_INVARIANT(names_rows_once(entries), "a column names each of its rows once");
  if (auto ok = check_number(cost, "cost"); !ok) return ok;
  for (const auto& e : entries)
    if (auto ok = check_number(e.value, "coefficient"); !ok) return ok;
  return check_bounds(0, upper);
}

}  // namespace

bool linear_program::takes(double v) {
  return std::abs(v) <= largest;
}

std::size_t linear_program::add_row(double lower, double upper) {
  rows_.push_back({lower, upper});
  return rows_.size() - 1;
}

std::size_t linear_program::add_column(std::vector<entry> entries, double cost, double upper) {
  columns_.push_back({std::move(entries), cost, upper});
  return columns_.size() - 1;
}

/// Keeps COIN-OR's headers out of ours.
struct linear_solver::coin {
  OsiClpSolverInterface solver;
  std::size_t columns = 0;
  /// The last answer, for the program as it is now.
  enum class next { none, feasible, optimal } answer = next::none;

  double bound(double v) const {
    if (v == linear_program::infinite) return solver.getInfinity();
    if (v == -linear_program::infinite) return -solver.getInfinity();
    return v;
  }
};

// The matrix is packed by columns, as Clp keeps it: `starts` has the index of each column's first
// entry, and one more for the end. Logging is off, since the library would write to standard
// output.
linear_solver::linear_solver(const linear_program& p, bool integral)
    : coin_{std::make_unique<coin>()} {
  auto& solver = coin_->solver;
  auto& columns = coin_->columns;
  columns = p.columns_.size();
  std::vector<int> starts, rows;
  std::vector<double> values, lower(columns, 0.0), upper, cost, row_lower, row_upper;
  for (const auto& c : p.columns_) {
    starts.push_back(static_cast<int>(rows.size()));
    for (const auto& e : c.entries) {
      TROUPE_INVARIANT(e.row < p.rows_.size(),
                       "a coefficient of a column is of a row that was added");
      rows.push_back(static_cast<int>(e.row));
      values.push_back(e.value);
    }
    upper.push_back(coin_->bound(c.upper));
    cost.push_back(c.cost);
  }
  starts.push_back(static_cast<int>(rows.size()));
  for (const auto& r : p.rows_) {
    row_lower.push_back(coin_->bound(r.lower));
    row_upper.push_back(coin_->bound(r.upper));
  }
  solver.messageHandler()->setLogLevel(0);
  solver.loadProblem(static_cast<int>(columns), static_cast<int>(row_upper.size()), starts.data(),
                     rows.data(), values.data(), lower.data(), upper.data(), cost.data(),
                     row_lower.data(), row_upper.data());
  for (int i = 0; integral && i < static_cast<int>(columns); ++i) solver.setInteger(i);
}

linear_solver::linear_solver(linear_solver&&) noexcept = default;
linear_solver::~linear_solver() = default;

expected<linear_solver> linear_solver::of(const linear_program& p, bool integral) {
  for (const auto& r : p.rows_)
    if (auto ok = check_bounds(r.lower, r.upper); !ok) return refuse(ok.error());
  for (const auto& c : p.columns_)
    if (auto ok = check_column(c.entries, c.cost, c.upper); !ok) return refuse(ok.error());
  return linear_solver{p, integral};
}

expected<void> linear_solver::add_column(const std::vector<linear_program::entry>& entries,
                                         double cost, double upper) {
  if (auto ok = check_column(entries, cost, upper); !ok) return ok;
  CoinPackedVector column;
  for (const auto& e : entries) column.insert(static_cast<int>(e.row), e.value);
  coin_->solver.addCol(column, 0, coin_->bound(upper), cost);
  coin_->answer = coin::next::feasible;
  ++coin_->columns;
  return {};
}

expected<void> linear_solver::add_row(const std::vector<double>& values, double lower,
                                      double upper) {
  if (auto ok = check_bounds(lower, upper); !ok) return ok;
  for (const double v : values)
    if (auto ok = check_number(v, "coefficient"); !ok) return ok;
  CoinPackedVector row;
  TROUPE_INVARIANT(values.size() <= coin_->columns,
                   "a row has coefficients of columns that were added");
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] != 0) row.insert(static_cast<int>(i), values[i]);
  coin_->solver.addRow(row, coin_->bound(lower), coin_->bound(upper));
  coin_->answer = coin::next::optimal;
  return {};
}

// An answer stays feasible with more columns, and optimal, if infeasible, with more rows: the
// primal or the dual simplex method goes on from there.
void linear_solver::relax() {
  auto& solver = coin_->solver;
  if (coin_->answer == coin::next::none) return solver.initialSolve();
  solver.setHintParam(OsiDoDualInResolve, coin_->answer == coin::next::optimal, OsiHintDo);
  solver.resolve();
}

std::vector<double> linear_solver::solution() const {
  const double* x = coin_->solver.getColSolution();
  return {x, x + coin_->columns};
}

std::vector<double> linear_solver::reduced_costs() const {
  const double* costs = coin_->solver.getReducedCost();
  return {costs, costs + coin_->columns};
}

std::vector<double> linear_solver::row_prices() const {
  const double* prices = coin_->solver.getRowPrice();
  return {prices, prices + coin_->solver.getNumRows()};
}

double linear_solver::objective() const {
  return coin_->solver.getObjValue();
}

// CBC copies the solver with its basis, so it starts where relax() ended. Limits are gaps and nodes
// but no time, so that the result is the same on every machine.
std::optional<integral_solution> linear_solver::search(const search_limits& limits,
                                                       std::optional<known_solution> known) const {
  CbcModel model(coin_->solver);
  model.setLogLevel(0);
  model.messageHandler()->setLogLevel(0);
  if (limits.gap > 0) model.setAllowableGap(limits.gap);
  if (limits.relative_gap > 0) model.setAllowableFractionGap(limits.relative_gap);
  model.setMaximumNodes(limits.max_nodes);
  model.setDblParam(CbcModel::CbcCutoffIncrement, limits.min_improvement);
  TROUPE_INVARIANT(!known || known->x.size() == coin_->columns,
                   "a known solution has a value for each column");
  if (known)
    model.setBestSolution(known->x.data(), static_cast<int>(known->x.size()), known->objective,
                          true);
  model.branchAndBound();
  const double* x = model.bestSolution();
  if (x == nullptr) return {};
  return integral_solution{{x, x + coin_->columns}, model.getBestPossibleObjValue()};
}

}  // namespace troupe::planners
