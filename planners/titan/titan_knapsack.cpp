#include <algorithm>
#include <limits>
#include <numeric>

#include "messages/base/invariant.hpp"
#include "planners/titan/titan_problem.hpp"

namespace troupe::planners {
namespace {

// A table of jobs times GPUs is kept for the way back. Beyond this the program is faster.
constexpr std::size_t max_table = 1 << 22;

std::uint32_t idle_gpus(const titan_pool& p) {
  return std::accumulate(p.idle.begin(), p.idle.end(), 0u);
}

}  // namespace

bool is_titan_knapsack(const titan_problem& p) {
  if (p.pools.size() != 1) return false;
  const auto& pool = p.pools[0];
  const bool whole = std::ranges::all_of(
      pool.idle, [&](std::uint32_t idle) { return idle == 0 || idle == pool.node_gpus; });
  const bool alone =
      std::ranges::all_of(p.columns, [](const titan_column& c) { return c.jobs.size() == 1; });
  return whole && alone && (idle_gpus(pool) + std::size_t{1}) * p.jobs <= max_table;
}

// After job i, best[m] is the largest value of jobs 0 to i on at most m GPUs. Job i takes one of
// its columns or none: best_i[m] = max(best_{i-1}[m], max over its columns of value +
// best_{i-1}[m - gpus]). The way back from best_N[M] reads which column was taken. Ties take no
// column, then the column of the smallest index, so that GPUs are not spent for nothing. Since
// nodes are wholly idle, M GPUs hold whatever (4) allows (has_room()).
titan_answer solve_titan_knapsack(const titan_problem& p) {
  constexpr auto none = std::numeric_limits<std::uint32_t>::max();
  std::vector<std::vector<std::uint32_t>> columns_of(p.jobs);
  for (std::uint32_t c = 0; c < p.columns.size(); ++c)
    columns_of[p.columns[c].jobs[0]].push_back(c);

  const auto gpus = idle_gpus(p.pools[0]);
  std::vector<double> best(gpus + 1, 0.0);
  std::vector<std::vector<std::uint32_t>> taken(p.jobs);
  for (std::uint32_t job = 0; job < p.jobs; ++job) {
    taken[job].assign(gpus + 1, none);
    // From many GPUs to few: best[m - gpus] is still the one without this job.
    for (auto m = gpus; m > 0; --m) {
      for (const auto c : columns_of[job]) {
        const auto& column = p.columns[c];
        if (column.gpus > m) continue;
        const double with = column.value + best[m - column.gpus];
        if (with > best[m]) {
          best[m] = with;
          taken[job][m] = c;
        }
      }
    }
  }

  titan_answer answer;
  auto left = gpus;
  for (auto job = p.jobs; job-- > 0;) {
    const auto c = taken[job][left];
    if (c == none) continue;
    answer.taken.push_back(c);
    TROUPE_INVARIANT(p.columns[c].gpus <= left,
                     "the jobs of a decision have no more GPUs than are idle");
    left -= p.columns[c].gpus;
  }
  std::ranges::sort(answer.taken);
  for (const auto c : answer.taken) answer.objective += p.columns[c].value;
  answer.bound = answer.objective;
  return answer;
}

}  // namespace troupe::planners
