#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <string>

#include "messages/base/random.hpp"
#include "planners/solver/linear_program.hpp"

using namespace troupe;
using planners::linear_program;
using planners::linear_solver;

namespace {

constexpr std::size_t all_rows = 12, all_columns = 40;

// Packing programs: values per column, weights per row.
struct packing {
  std::vector<double> cost;
  std::vector<std::vector<double>> weight;  // by row, then column

  linear_program program(std::size_t rows, std::size_t columns) const {
    linear_program p;
    for (std::size_t r = 0; r < rows; ++r) p.add_row(-linear_program::infinite, 10);
    for (std::size_t c = 0; c < columns; ++c) p.add_column(entries(rows, c), cost[c], 1);
    return p;
  }
  std::vector<linear_program::entry> entries(std::size_t rows, std::size_t column) const {
    std::vector<linear_program::entry> out;
    for (std::size_t r = 0; r < rows; ++r)
      if (weight[r][column] > 0) out.push_back({r, weight[r][column]});
    return out;
  }
};

packing random_packing(random_source& random) {
  packing p;
  for (std::size_t c = 0; c < all_columns; ++c) p.cost.push_back(-1 - random.uniform());
  for (std::size_t r = 0; r < all_rows; ++r) {
    p.weight.emplace_back();
    for (std::size_t c = 0; c < all_columns; ++c)
      p.weight[r].push_back(random.uniform() < 0.4 ? 1 + 4 * random.uniform() : 0);
  }
  return p;
}

double relaxed(const linear_program& p) {
  auto solver = linear_solver::of(p, false);
  REQUIRE(solver);
  solver->relax();
  return solver->objective();
}

}  // namespace

TEST_CASE("a solver that gets more columns and rows finds what one with all of them finds") {
  random_source random{7};
  for (int i = 0; i < 200; ++i) {
    const auto p = random_packing(random);
    std::size_t rows = 4, columns = 10;
    auto made = linear_solver::of(p.program(rows, columns), false);
    REQUIRE(made);
    auto& solver = *made;
    solver.relax();
    while (columns < all_columns || rows < all_rows) {
      if (columns < all_columns) {
        for (const auto end = columns + 10; columns < end; ++columns)
          REQUIRE(solver.add_column(p.entries(rows, columns), p.cost[columns], 1));
      } else {
        std::vector<double> values(p.weight[rows].begin(),
                                   p.weight[rows].begin() + static_cast<std::ptrdiff_t>(columns));
        REQUIRE(solver.add_row(values, -linear_program::infinite, 10));
        ++rows;
      }
      solver.relax();
      const double whole = relaxed(p.program(rows, columns));
      REQUIRE(std::abs(solver.objective() - whole) < 1e-7 * std::abs(whole));
      REQUIRE(solver.solution().size() == columns);
      REQUIRE(solver.row_prices().size() == rows);
    }
  }
}

TEST_CASE("the solver has the reference BLAS, whichever the system prefers") {
  random_source random{7};
  CHECK(relaxed(random_packing(random).program(4, 10)) < 0);
  std::ifstream maps{"/proc/self/maps"};
  for (std::string line; std::getline(maps, line);) CHECK(line.find("openblas") == line.npos);
}
