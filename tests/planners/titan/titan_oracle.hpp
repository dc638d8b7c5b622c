#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "planners/titan/titan_problem.hpp"

// The answer to TITAN's program, by trying everything: small problems only. It shares no code
// with the planner: places are found on nodes, not counted by size.

namespace troupe::planners::titan_oracle {

/// Whether the counts can be placed on the nodes, each within one or on whole ones, in any way.
inline bool can_place(std::vector<std::uint32_t> idle, std::uint32_t node_gpus,
                      std::vector<std::uint32_t> counts) {
  if (counts.empty()) return true;
  const auto gpus = counts.back();
  counts.pop_back();
  if (gpus <= node_gpus) {
    for (auto& n : idle) {
      if (n < gpus) continue;
      n -= gpus;
      if (can_place(idle, node_gpus, counts)) return true;
      n += gpus;
    }
    return false;
  }
  // Wholly idle nodes are alike.
  auto nodes = gpus / node_gpus;
  for (auto& n : idle) {
    if (nodes == 0) break;
    if (n != node_gpus) continue;
    n = 0;
    --nodes;
  }
  return nodes == 0 && can_place(idle, node_gpus, counts);
}

/// The counts that a choice of columns has in each pool can be placed.
inline bool placed(const titan_problem& p, const std::vector<std::size_t>& taken) {
  for (std::uint32_t i = 0; i < p.pools.size(); ++i) {
    std::vector<std::uint32_t> counts;
    for (const auto c : taken)
      if (p.columns[c].pool == i) counts.push_back(p.columns[c].gpus);
    if (!can_place(p.pools[i].idle, p.pools[i].node_gpus, counts)) return false;
  }
  return true;
}

/// Each job has at most one of the columns.
inline bool disjoint(const titan_problem& p, const std::vector<std::size_t>& taken) {
  std::set<std::uint32_t> jobs;
  for (const auto c : taken)
    for (const auto job : p.columns[c].jobs)
      if (!jobs.insert(job).second) return false;
  return true;
}

/// Whether the choice also satisfies (9) and (10) as they are printed: for each union k, y_k and
/// all x of its jobs sum to at most 1; y_k and all y of unions that overlap it sum to at most 1.
inline bool as_printed(const titan_problem& p, const std::vector<std::size_t>& taken) {
  const auto overlap = [](const auto& a, const auto& b) {
    return std::ranges::any_of(a, [&](auto job) { return std::ranges::find(b, job) != b.end(); });
  };
  for (const auto& k : p.columns) {
    if (k.jobs.size() < 2) continue;
    int alone = 0, unions = 0;
    for (const auto c : taken) {
      const auto& column = p.columns[c];
      if (!overlap(column.jobs, k.jobs)) continue;
      alone += column.jobs == k.jobs || column.jobs.size() == 1;
      unions += column.jobs.size() > 1;
    }
    if (alone > 1 || unions > 1) return false;
  }
  return true;
}

/// The largest objective of all choices that `allowed` accepts. O(2^columns), less what is
/// infeasible early.
inline double best(const titan_problem& p,
                   const std::function<bool(const std::vector<std::size_t>&)>& allowed) {
  double best = 0;
  std::vector<std::size_t> taken;
  const std::function<void(std::size_t, double)> visit = [&](std::size_t c, double value) {
    best = std::max(best, value);
    for (; c < p.columns.size(); ++c) {
      taken.push_back(c);
      if (disjoint(p, taken) && placed(p, taken) && allowed(taken))
        visit(c + 1, value + p.columns[c].value);
      taken.pop_back();
    }
  };
  visit(0, 0);
  return best;
}

}  // namespace troupe::planners::titan_oracle
