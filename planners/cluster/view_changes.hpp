#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "messages/domain/job.hpp"

namespace troupe::planners {

/// The jobs whose views in a snapshot's lists `waiting` and `running` have changed, in the order of
/// the changes: who keeps what it knows of the lists looks at these alone, since most jobs are the
/// same in the next decision. Written by the owner of the lists. Not thread-safe.
class view_changes {
 public:
  /// A time between two changes. Those of one object are never those of another one.
  struct mark {
    std::uint64_t log = 0, count = 0;  // log 0: before all changes of any lists
    bool operator==(const mark&) const = default;
  };

  /// `log`: a number that no other object has or has had, at least 1; of note_all() likewise.
  explicit view_changes(std::uint64_t log) : log_{log} {}
  view_changes(const view_changes&) = delete;
  view_changes& operator=(const view_changes&) = delete;

  /// The job's view has come into a list, changed there, or left it.
  void note(job_id job) {
    if (jobs_.size() >= 2 * kept) {
      jobs_.erase(jobs_.begin(), jobs_.begin() + kept);
      first_ += kept;
    }
    jobs_.push_back(job);
  }
  /// All views may have changed, and their addresses.
  void note_all(std::uint64_t log) {
    log_ = log;
    jobs_.clear();
    first_ = 0;
  }
  mark now() const { return {log_, first_ + jobs_.size()}; }
  /// The jobs of the changes since then, some of them more than once; none: any may have changed.
  /// Valid until the next note().
  std::optional<std::span<const job_id>> since(const mark& m) const {
    if (m.log != log_ || m.count < first_) return {};
    return std::span{jobs_}.subspan(m.count - first_);
  }

 private:
  static constexpr std::size_t kept = 1024;  // changes at least

  std::uint64_t log_ = 0, first_ = 0;  // first_: changes that are not kept
  std::vector<job_id> jobs_;
};

}  // namespace troupe::planners
