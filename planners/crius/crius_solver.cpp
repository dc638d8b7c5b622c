// The yardstick of crius-solver (docs/planners/crius.md): the choices of all jobs at once as an
// integer program, the "techniques based on solvers" that the paper leaves aside (section 6).
// Maximize the sum of values. A row for each group of alike jobs: at most as many choices as it has
// jobs; and for each pool: at most its GPUs. A column for each choice of a group: the number of its
// jobs that get it. Groups keep the program small and without symmetries, which branch and bound
// would explore one by one.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "planners/crius/crius_search.hpp"
#include "planners/solver/linear_program.hpp"

namespace troupe::planners {

namespace {

/// The program and the meaning of its columns.
class assignment_program {
 public:
  assignment_program(const std::vector<alike_choices>& groups,
                     const std::vector<std::uint32_t>& capacity)
      : groups_{groups}, left_{capacity} {
    for (std::size_t i = 0; i < groups.size(); ++i) add_group(i);
    if (columns_.empty()) return;
    for (const auto n : capacity) program_.add_row(-linear_program::infinite, n);
  }

  cell_assignment solve() {
    cell_assignment best{std::move(none_), 0, 0};
    if (columns_.empty()) return best;
    auto solver = linear_solver::of(program_, true);
    // A model of CBC's without heuristics has an answer only if a dive ends integral. Without a
    // known one, and none found, every job would be stopped.
    auto known = present_and_greedy();
    const double known_value = value_of(known);
    const auto found = solver ? solver->search({0, 1e-3, 50}, {{known, -known_value}})
                              : std::optional<integral_solution>{};
    const auto& x = found ? found->x : known;
    for (std::size_t i = 0; i < columns_.size(); ++i)
      best.taken[columns_[i].group][columns_[i].choice] =
          static_cast<std::uint32_t>(std::lround(x[i]));
    best.value = value_of(x);
    best.bound = best.value;
    if (!solver) return best;
    if (!found) solver->relax();
    best.bound = std::max(best.value, found ? -found->bound : -solver->objective());
    return best;
  }

 private:
  struct column {
    std::size_t group = 0, choice = 0;
  };

  const cell_choice& choice_of(const column& c) const { return groups_[c.group].choices[c.choice]; }

  void add_group(std::size_t i) {
    const auto& g = groups_[i];
    none_.emplace_back(g.choices.size());
    waiting_.push_back(g.jobs);
    program_.add_row(-linear_program::infinite, g.jobs);
    for (std::size_t k = 0; k < g.choices.size(); ++k) {
      const auto& x = g.choices[k];
      if (!linear_program::takes(x.value)) continue;  // the job goes on by its other choices
      program_.add_column({{i, 1}, {groups_.size() + x.pool, double(x.gpus)}}, -x.value, g.jobs);
      columns_.push_back({i, k});
    }
  }

  double value_of(const std::vector<double>& x) const {
    double sum = 0;
    for (std::size_t i = 0; i < columns_.size(); ++i) sum += x[i] * choice_of(columns_[i]).value;
    return sum;
  }

  /// As many of the group's jobs as its column and the GPUs that are left allow.
  void take(std::vector<double>& x, std::size_t i) {
    const auto& c = choice_of(columns_[i]);
    auto& jobs = waiting_[columns_[i].group];
    const auto n = c.gpus == 0 ? jobs : std::min(jobs, left_[c.pool] / c.gpus);
    x[i] += n;
    jobs -= n;
    left_[c.pool] -= n * c.gpus;
  }

  /// Running jobs go on, and the idle GPUs go to the choices with the largest value per GPU.
  std::vector<double> present_and_greedy() {
    std::vector<double> x(columns_.size());
    std::vector<std::size_t> order(columns_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (const auto i : order)
      if (groups_[columns_[i].group].present == columns_[i].choice) take(x, i);
    std::ranges::stable_sort(order, std::greater{}, [&](std::size_t i) {
      const auto& c = choice_of(columns_[i]);
      return c.value / std::max(1U, c.gpus);
    });
    for (const auto i : order) take(x, i);
    return x;
  }

  const std::vector<alike_choices>& groups_;
  std::vector<std::uint32_t> left_;     // GPUs by pool, for the greedy assignment
  std::vector<std::uint32_t> waiting_;  // jobs by group, for it
  linear_program program_;
  std::vector<column> columns_;
  std::vector<std::vector<std::uint32_t>> none_;
};

}  // namespace

cell_assignment solve_assignment(const std::vector<alike_choices>& groups,
                                 const std::vector<std::uint32_t>& capacity) {
  return assignment_program{groups, capacity}.solve();
}

}  // namespace troupe::planners
