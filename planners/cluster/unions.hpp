#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "messages/domain/job.hpp"
#include "messages/domain/job_union.hpp"

// Which waiting jobs may be trained as one. The paper of the task merger (TITAN, Gao et al., SoCC
// 2022, section 4.2) names the criteria (dataset cards that are alike, durations that are close,
// users who agree) without thresholds; these are ours (docs/planners/titan.md, "Candidates").

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
/// The ratio of the longer duration to the shorter.
double ratio_of(const merge_job& a, const merge_job& b);

}  // namespace troupe::planners
