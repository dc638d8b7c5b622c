#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "messages/base/reason.hpp"

// Linear and integer programs, solved by Clp and CBC (COIN-OR): for Gavel's and Sia's allocations
// (docs/planners/baselines.md) and crius-solver (docs/planners/crius.md). The only place that
// includes their headers.

namespace troupe::planners {

/// Minimizes the sum of `cost` times x over all columns, with lower <= a x <= upper in each row
/// and 0 <= x <= upper in each column.
class linear_program {
 public:
  static constexpr double infinite = std::numeric_limits<double>::infinity();
  /// The largest absolute value of a cost or coefficient, and of a bound that is not infinite.
  /// Beyond it Clp takes numbers for infinite, and its assertions would end the process.
  static constexpr double largest = 1e20;

  /// Is it finite and not beyond `largest`? A column with another number is to be left out.
  static bool takes(double v);

  /// A coefficient of a column, which names each row once.
  struct entry {
    std::size_t row = 0;
    double value = 0;
  };

  /// Returns the row's index. Rows may be added before or after the columns that name them.
  std::size_t add_row(double lower, double upper);
  /// Returns the column's index. Precondition: each row at most once.
  std::size_t add_column(std::vector<entry> entries, double cost, double upper = infinite);

 private:
  friend class linear_solver;

  struct bounds {
    double lower = 0, upper = 0;
  };
  struct column {
    std::vector<entry> entries;
    double cost = 0, upper = 0;
  };
  std::vector<bounds> rows_;
  std::vector<column> columns_;
};

/// When the search for an integral solution ends; 0 for a gap: not by it.
struct search_limits {
  double gap = 0;           // absolute difference of the objective and the bound
  double relative_gap = 0;  // the same relative to the objective
  int max_nodes = 0;
  double min_improvement = 1e-5;  // absolute: solutions that are better by less are not sought
};

/// The result of a search.
struct integral_solution {
  std::vector<double> x;  // by column
  double bound = 0;       // no integral solution has a smaller objective
};

/// A solution with its objective, from which a search may start.
struct known_solution {
  std::vector<double> x;  // by column
  double objective = 0;
};

/// Solves one program. Deterministic: the same program and limits give the same values.
class linear_solver {
 public:
  /// `integral`: every x must be a whole number in search(). Fails if the program has a number that
  /// linear_program::takes() does not take, other than infinite bounds.
  static expected<linear_solver> of(const linear_program& p, bool integral);
  linear_solver(linear_solver&&) noexcept;
  ~linear_solver();

  /// Adds a column, or a row with its value in each column: the next relax() starts from the last
  /// one's answer. Between two of them add either columns or rows. Fails as of() does, and adds
  /// nothing then.
  expected<void> add_column(const std::vector<linear_program::entry>& entries, double cost,
                            double upper = linear_program::infinite);
  expected<void> add_row(const std::vector<double>& values, double lower, double upper);

  /// Solves the linear relaxation. Precondition of the next four.
  void relax();
  /// The values of x, by column.
  std::vector<double> solution() const;
  std::vector<double> reduced_costs() const;
  /// The change of the objective with a row's bound, by row.
  std::vector<double> row_prices() const;
  double objective() const;

  /// Branch and bound for an integral solution; starts from the relaxation if relax() was called,
  /// and from `known`. Nothing: none was found within the limits.
  std::optional<integral_solution> search(const search_limits& limits,
                                          std::optional<known_solution> known = {}) const;

 private:
  linear_solver(const linear_program& p, bool integral);

  struct coin;
  std::unique_ptr<coin> coin_;
};

}  // namespace troupe::planners
