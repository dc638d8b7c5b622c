#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "messages/domain/job.hpp"
#include "messages/domain/job_union.hpp"

// TITAN's task merger (Gao et al., SoCC 2022, section 4.2): which waiting jobs may be trained as
// one, the set S of (5). The paper names the criteria (dataset cards that are alike, durations that
// are close, users who agree) without thresholds; these are ours (docs/planners/titan.md,
// "Candidates").

namespace troupe::planners {

/// A waiting job as the merger sees it.
struct merge_job {
  std::uint64_t id = 0;
  bool allowed = true;  // its user agrees
  bool can = true;      // it is work that can be, without a limit of its own
  bool alone = false;   // it ran out of memory in a union
  merge_kind kind = merge_kind::shared;
  /// Everything that must be equal: base, shape of a sample, precision, device, trained layers.
  std::string alike;
  std::string owner{};
  bool across_owners = false;     // its user agrees to share with other owners
  std::vector<std::string> card;  // key words, ascending, each once
  double duration_s = 0;          // alone; greater than 0
};

/// A submitted job; without a duration, which its policy knows.
merge_job merge_job_of(std::uint64_t id, const job_spec& spec, std::string owner, bool alone);

struct merge_rules {
  double similarity = 0.5;     // of two cards, at least
  double duration_ratio = 2;   // of the longer to the shorter, at most
  std::uint32_t partners = 8;  // of a job, at most
  std::uint32_t per_job = 4;   // candidates, at most, times the number of jobs
};

/// Jobs that may be one.
struct merge_candidate {
  std::vector<std::uint32_t> jobs;  // ascending indices, two or three
  double similarity = 1;            // the smallest of its pairs
  double duration_ratio = 1;        // the largest of its pairs
};

/// The first reason why two jobs must not be one.
enum class merge_obstacle : std::uint8_t {
  none,
  opted_out,
  cannot,
  alone,
  kind,
  alike,
  owner,
  no_card,
  similarity,
  duration
};
merge_obstacle obstacle_between(const merge_job& a, const merge_job& b,
                                const merge_rules& rules = {});
/// The first obstacle that holds for every policy: those before the cards.
merge_obstacle must_run_apart(const merge_job& a, const merge_job& b);
/// The same as a sentence for people; empty: they may.
std::string why_not_merged(const merge_job& a, const merge_job& b, const merge_rules& rules = {});

/// Jaccard's index of two cards: key words of both over key words of either. Precondition: each is
/// ascending. 0 for two empty cards: nothing is known of them.
double similarity_of(std::span<const std::string> a, std::span<const std::string> b);

/// The worth of a candidate, for the choice among too many.
using merge_value = std::function<double(const merge_candidate&)>;

/// Pairs and triples whose jobs may all be one: of each job with its closest partners, by
/// similarity, then ratio of durations, then id; of these the ones of the largest value, ties by
/// jobs. In the order of their jobs. Deterministic. O(jobs^2 * card + jobs * partners^2).
std::vector<merge_candidate> merge_candidates(std::span<const merge_job> jobs,
                                              const merge_value& value,
                                              const merge_rules& rules = {});

}  // namespace troupe::planners
