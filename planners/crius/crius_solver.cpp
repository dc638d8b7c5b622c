// The yardstick of crius-solver (docs/planners/crius.md): the choices of all jobs at once as an
// integer program, the "techniques based on solvers" that the paper leaves aside (section 6).
// Maximize the sum of values. A row for each group of alike jobs: at most as many choices as it has
// jobs; and for each pool: at most its GPUs. A column for each choice of a group: the number of its
// jobs that get it. Groups keep the program small and without symmetries, which branch and bound
// would explore one by one.

#include <cmath>
#include <cstddef>

#include "planners/crius/crius_search.hpp"
#include "planners/solver/linear_program.hpp"

namespace troupe::planners {

namespace {

struct assignment_column {
  std::size_t job = 0, choice = 0;
};

}  // namespace

std::vector<std::vector<std::uint32_t>> solve_assignment(
    const std::vector<std::vector<cell_choice>>& jobs, const std::vector<std::uint32_t>& counts,
    const std::vector<std::uint32_t>& capacity) {
  linear_program p;
  std::vector<assignment_column> columns;
  std::vector<std::vector<std::uint32_t>> taken;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    taken.emplace_back(jobs[i].size());
    p.add_row(-linear_program::infinite, counts[i]);
    for (std::size_t k = 0; k < jobs[i].size(); ++k) {
      const auto& x = jobs[i][k];
      p.add_column({{i, 1}, {jobs.size() + x.pool, double(x.gpus)}}, -x.value, counts[i]);
      columns.push_back({i, k});
    }
  }
  if (columns.empty()) return taken;
  for (const auto n : capacity) p.add_row(-linear_program::infinite, n);
  const auto found = linear_solver{p, true}.search({0, 1e-3, 50});
  if (!found) return taken;
  const auto& x = found->x;
  for (std::size_t i = 0; i < columns.size(); ++i)
    taken[columns[i].job][columns[i].choice] = static_cast<std::uint32_t>(std::lround(x[i]));
  return taken;
}

}  // namespace troupe::planners
