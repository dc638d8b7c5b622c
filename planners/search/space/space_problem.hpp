#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "planners/search/space/plan_space.hpp"

// The question that the search for pipelines answers, and its answers, without clusters, jobs and
// cost models: those are behind space_times.hpp.

namespace troupe::planners {

/// A type of GPU in nodes of one size.
struct space_kind {
  double price_per_hour = 0;  // of one GPU
};

/// A choice for a stage: so many GPUs of one kind in one node.
struct space_class {
  std::uint32_t kind = 0, tensor = 1;  // a power of two

  auto operator<=>(const space_class&) const = default;
};

/// Idle GPUs of one kind in one datacenter.
struct space_pool {
  std::uint32_t kind = 0, datacenter = 0;
  std::vector<std::uint32_t> free;  // of each node

  bool operator==(const space_pool&) const = default;
};

/// The best plan has the fewest seconds, GPU seconds, or dollars of an iteration.
enum class space_goal : std::uint8_t { fastest, efficient, cheapest };

struct space_problem {
  std::uint32_t pieces = 1;         // of the model, that stages divide
  std::uint32_t grain = 1;          // pieces that a search for cuts moves together; moves do not
  std::uint32_t samples = 1;        // of an iteration
  std::vector<std::uint32_t> rows;  // samples of a micro-batch to try; each divides `samples`
  std::uint32_t max_stages = 8;
  std::vector<space_kind> kinds;
  std::vector<space_class> classes;
  std::vector<space_pool> pools;  // at most one of a kind and datacenter
  std::uint32_t datacenters = 1;
  plan_space space;
  space_goal goal = space_goal::fastest;
  std::optional<double> max_s, max_dollars;  // of an iteration
  std::optional<std::uint32_t> max_gpus;
  std::uint64_t exact_plans = 200'000;  // of up to so many plans, all are valued

  std::uint32_t microbatches(std::uint32_t of_rows) const { return samples / of_rows; }
};

/// The GPUs of a stage of one pipeline: a class, by index, and the datacenter.
struct space_seat {
  std::uint32_t cls = 0, datacenter = 0;

  auto operator<=>(const space_seat&) const = default;
};

/// Equal pipelines, one after the other in the order of sums.
struct space_group {
  std::uint32_t pipelines = 1;
  std::uint32_t microbatches = 1;  // of each of them
  std::vector<space_seat> seats;   // by stage

  auto operator<=>(const space_group&) const = default;
};

/// The sum of pipelines x microbatches x rows is `samples`, exactly.
struct space_plan {
  std::uint32_t rows = 1;
  std::vector<std::uint32_t> firsts;  // by stage: its first piece; 0 first
  std::vector<space_group> groups;

  std::uint32_t stages() const { return static_cast<std::uint32_t>(firsts.size()); }
  std::uint32_t pipelines() const {
    std::uint32_t n = 0;
    for (const auto& g : groups) n += g.pipelines;
    return n;
  }
  auto operator<=>(const space_plan&) const = default;
};

/// Seconds and dollars of an iteration, the dollars with traffic; infinite: it cannot be made.
struct space_value {
  double seconds = std::numeric_limits<double>::infinity();
  double dollars = std::numeric_limits<double>::infinity();
};

struct valued_plan {
  space_plan plan;
  space_value value;
  double score = std::numeric_limits<double>::infinity();
};

/// GPUs of a plan.
inline std::uint32_t gpus_of(const space_problem& p, const space_plan& plan) {
  std::uint32_t n = 0;
  for (const auto& g : plan.groups)
    for (const auto& s : g.seats) n += g.pipelines * p.classes[s.cls].tensor;
  return n;
}

/// Whether its stages have a piece each, and all of the model's together.
inline bool is_cut(const space_problem& p, const std::vector<std::uint32_t>& firsts) {
  return !firsts.empty() && firsts.front() == 0 && firsts.back() < p.pieces &&
         std::ranges::adjacent_find(firsts, std::ranges::greater_equal{}) == firsts.end();
}

/// The rank of a plan, smaller is better; infinite: beyond a limit of the problem.
inline double score_of(const space_problem& p, const space_value& v, std::uint32_t gpus) {
  constexpr double never = std::numeric_limits<double>::infinity();
  if (!(v.seconds < never)) return never;
  if (p.max_s && v.seconds > *p.max_s * (1 + 1e-12)) return never;
  if (p.max_dollars && v.dollars > *p.max_dollars * (1 + 1e-12)) return never;
  if (p.max_gpus && gpus > *p.max_gpus) return never;
  if (p.goal == space_goal::fastest) return v.seconds;
  return p.goal == space_goal::cheapest ? v.dollars : v.seconds * gpus;
}

}  // namespace troupe::planners
