#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "planners/cluster/unions.hpp"

// TITAN's task merger (Gao et al., SoCC 2022, section 4.2): the set S of (5), by the rules of
// cluster/unions.hpp.

namespace troupe::planners {

/// Jobs that may be one.
struct merge_candidate {
  std::vector<std::uint32_t> jobs;  // ascending indices, two or three
  double similarity = 1;            // the smallest of its pairs
  double duration_ratio = 1;        // the largest of its pairs
};

/// The worth of a candidate, for the choice among too many.
using merge_value = std::function<double(const merge_candidate&)>;

/// Pairs and triples whose jobs may all be one: of each job with its closest partners, by
/// similarity, then ratio of durations, then id; of these the ones of the largest value, ties by
/// jobs. In the order of their jobs. Deterministic. O(jobs^2 * card + jobs * partners^2).
std::vector<merge_candidate> merge_candidates(std::span<const merge_job> jobs,
                                              const merge_value& value,
                                              const merge_rules& rules = {});

}  // namespace troupe::planners
