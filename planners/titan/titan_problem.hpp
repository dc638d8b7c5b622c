#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

// TITAN's choice of GPUs for fine-tuning jobs (Gao et al., SoCC 2022): Section 3, equations (1) to
// (4), and with merging equations (5) to (11), as plain numbers. The policy (titan.hpp) makes the
// columns from jobs and the lookup table; nothing here knows jobs, models or nodes by name.
//
// Two constraints differ from the printed ones, both in docs/planners/titan.md:
// - (9) and (10) forbid more than an overlap: (9) that two jobs run apart if some union has both,
//   (10) that two disjoint unions run if a third one overlaps both. One row per job, "at most one
//   of all columns that contain it", is what the text asks for, and implies (8), (9) and (10) in
//   that sense.
// - (11) counts GPUs of the whole cluster. A row per pool and size class counts places instead, so
//   that every answer can be placed (size_classes()).

namespace troupe::planners {

/// GPUs that are alike, in nodes of one size.
struct titan_pool {
  std::uint32_t node_gpus = 0;
  std::vector<std::uint32_t> idle;  // GPUs, by node; at most node_gpus each
};

/// GPUs of one pool for one job, or for one union of jobs: x_ia or y_ka.
struct titan_column {
  std::vector<std::uint32_t> jobs;  // ascending; several: merged
  std::uint32_t pool = 0;
  std::uint32_t gpus = 0;  // of titan_counts()
  double value = 0;        // its coefficient in (5); greater than 0
};

struct titan_problem {
  std::uint32_t jobs = 0;  // columns name jobs 0 to jobs - 1
  std::vector<titan_pool> pools;
  std::vector<titan_column> columns;
};

struct titan_answer {
  std::vector<std::size_t> taken;  // indices of columns, ascending
  double objective = 0;            // the sum of their values
  double bound = 0;                // no answer has a larger sum

  /// The largest share of the objective that a better answer could add.
  double gap() const { return objective > 0 ? (bound - objective) / objective : 0; }
};

struct titan_limits {
  double gap = 1e-4;    // relative: the search may end there
  int max_nodes = 200;  // of branch and bound; not a time, so that results repeat
};

/// The sizes that decide whether counts find room in nodes of `node_gpus`: the powers of two that
/// divide it, and itself. Each divides the next.
std::vector<std::uint32_t> size_classes(std::uint32_t node_gpus);

/// The set A of (4) for such nodes, up to `max`: the size classes, whole nodes up to 16 of them,
/// and then twice as many each, which keeps the list short on large pools.
std::vector<std::uint32_t> titan_counts(std::uint32_t node_gpus, std::uint32_t max);

/// Whether the counts, each of titan_counts(), can be placed on the pool's idle GPUs, each within a
/// node or on whole ones. Exact: with sizes that divide each other, placing the largest first never
/// leaves a hole that another order would fill, so that it suffices to count places of each size.
bool has_room(const titan_pool& p, std::span<const std::uint32_t> counts);

/// The answer to a problem with one pool of wholly idle nodes and no unions: (1) to (4), a
/// knapsack with a choice of sizes per job, by dynamic programming over GPUs. Exact.
/// O(columns * GPUs) time, O(jobs * GPUs) memory.
titan_answer solve_titan_knapsack(const titan_problem& p);
/// Whether it may be called: the problem is of that kind, and not too large for it.
bool is_titan_knapsack(const titan_problem& p);

/// The answer to any problem, by CBC within `limits`.
titan_answer solve_titan_program(const titan_problem& p, const titan_limits& limits = {});

/// The answer by the knapsack where that is possible, otherwise by the program. Deterministic.
titan_answer solve_titan(const titan_problem& p, const titan_limits& limits = {});

}  // namespace troupe::planners
