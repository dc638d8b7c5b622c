#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "messages/base/fields.hpp"
#include "messages/base/units.hpp"

// Jobs that run as one: a union of jobs (docs/planners/titan.md, "Unions"). Their controller makes
// a job of its own for it, so that everything below it knows one job.

namespace troupe {

/// How jobs are trained as one.
enum class merge_kind : std::uint8_t {
  shared,   // one set of weights on the data of all
  adapters  // one frozen base, and an adapter for each job
};
inline constexpr std::array merge_kind_names{"shared", "adapters"};
constexpr const char* to_string(merge_kind k) {
  return merge_kind_names[static_cast<std::size_t>(k)];
}

/// The work that a member brings into its union.
struct member_work {
  std::uint64_t iterations = 0;  // that it has left
  std::uint32_t batch = 1;       // samples of each

  TROUPE_FIELDS(member_work, iterations, batch);
};

/// The members of a union, ascending. What each has brought counts until the union ends, also after
/// the member has left.
struct job_union {
  merge_kind kind = merge_kind::shared;
  std::vector<job_id> jobs;
  std::vector<member_work> work;  // of each

  TROUPE_FIELDS(job_union, kind, jobs, work);
};

/// The iterations of a union. `shared`: the largest number of its members, who end together.
/// `adapters`: an iteration of each member that is not done, member after member, hence the sum.
std::uint64_t union_iterations(merge_kind kind, std::span<const member_work> members);

/// The iterations that each member has done when the union has done `done`. `shared`: the same
/// share of each, rounded down. `adapters`: in rounds, an iteration takes as long as it has
/// samples.
std::vector<std::uint64_t> member_iterations(merge_kind kind, std::span<const member_work> members,
                                             std::uint64_t done);

/// The part of the union, 0 to 1, after which this member is done.
double member_end(merge_kind kind, std::span<const member_work> members, std::size_t member);

}  // namespace troupe
