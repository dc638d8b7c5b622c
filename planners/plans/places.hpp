#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"
#include "planners/cluster/datacenter_groups.hpp"
#include "planners/cluster/gpu_pools.hpp"
#include "planners/cluster/idle_index.hpp"
#include "planners/plans/bounds.hpp"

// Over which datacenters one job may be spread (docs/files.md, "Several datacenters"), under every
// policy. All of its datacenters must be linked, each with each: the ranks of a program may all
// talk to one another, and so do the trainer of a training and its stages. A program is moreover
// kept inside one datacenter, unless its file says otherwise (across_datacenters) or none is large
// enough for it.

namespace troupe::planners {

/// Where a job may be placed. Made for the plans that it may have, since these decide whether one
/// datacenter is large enough; keeps no references.
class job_places {
 public:
  /// `bytes_floor`: plans that need at most this have run out of memory.
  job_places(const cluster& c, const job_spec& job, const std::vector<plan>& plans,
             double bytes_floor = 0);
  /// Where it may be, were one datacenter enough for it or not.
  job_places(const cluster& c, const job_spec& job, bool one_is_enough);

  /// It may have any GPUs together; groups() is empty.
  bool anywhere() const { return groups_.empty(); }
  const std::vector<datacenter_group>& groups() const { return groups_; }

  /// The value that `place(idle)` returns for the GPUs of the first group for which that is not
  /// nothing.
  template <class Place>
  auto first(const cluster& c, const idle_index& idle, Place&& place) const {
    using result = decltype(place(idle));
    if (anywhere()) return place(idle);
    for (const auto& group : groups_)
      if (auto found = place(idle_in(c, idle, group))) return found;
    return result{};
  }

  /// The most GPUs of these types that one group has, idle or not, of no type more than its quota.
  std::uint64_t max_gpus(const cluster& c, const job_spec& job,
                         const std::vector<gpu_index>& types) const;

 private:
  std::vector<datacenter_group> groups_;
};

/// The idle GPUs of each group that the job may use (allowed_idle): a quota is of a group then, and
/// not used up by GPUs that the job cannot have beside these. Refers to `idle`.
class job_rooms {
 public:
  job_rooms(const cluster& c, const job_spec& job, const job_places& places,
            const idle_index& idle) {
    if (places.anywhere()) only_ = &allowed_idle(c, idle, job, restricted_);
    for (const auto& group : places.groups()) {
      const auto here = idle_in(c, idle, group);
      rooms_.push_back(allowed_idle(c, here, job, restricted_));
    }
  }
  job_rooms(const job_rooms&) = delete;
  job_rooms& operator=(const job_rooms&) = delete;

  /// The value that `place(idle)` returns for the first of them for which it is not nothing.
  template <class Place>
  auto first(Place&& place) const {
    using result = decltype(place(*only_));
    if (only_) return place(*only_);
    for (const auto& room : rooms_)
      if (auto found = place(room)) return found;
    return result{};
  }

 private:
  std::optional<idle_index> restricted_;
  const idle_index* only_ = nullptr;
  std::vector<idle_index> rooms_;
};

/// For a job that is placed by its user's request: that number of GPUs of these types.
job_places places_of_request(const cluster& c, const job_spec& job, std::uint32_t gpus,
                             const std::vector<gpu_index>& types);

/// Who has the GPUs that a job may have together, for a sentence: "the cluster has", or "no
/// datacenters that are linked have more than".
std::string holder_of(const cluster& c, const job_spec& job);

/// The plans that one group of datacenters can hold. Refuses if there is none of them, or with the
/// error given.
expected<std::vector<plan>> plans_in_groups(const cluster& c, const job_spec& job,
                                            expected<std::vector<plan>> plans);

/// Rejects GPUs of datacenters without a link, and a program's GPUs of several datacenters one of
/// which has as many of the same types, unless its file allows that.
expected<void> within_places(const cluster& c, const job_spec& job, const allocation& where);

/// Both within_numbers() and within_places(): whether a job may start there, by its own bounds.
expected<void> within_bounds(const cluster& c, const job_spec& job, const allocation& where);

/// Any number of GPUs of a pool for a program, the same on each node (free_gpus::find_equal); or,
/// where there is no such room and the program permits it, as they are, from the nodes with the
/// most free ones. Empty if there is no room.
allocation find_for_program(const free_gpus& free, const gpu_pool& pool, std::uint32_t gpus,
                            const job_spec& job);

/// How spread_notice() begins.
inline constexpr std::string_view spread_words = "no datacenter is large enough for it";

/// A sentence for its submitter: that the program is spread over datacenters because none is
/// large enough. Empty: it is not.
std::string spread_notice(const cluster& c, const job_spec& job, const std::vector<plan>& plans);

}  // namespace troupe::planners
