#pragma once

#include <algorithm>

#include "planners/cluster/snapshot.hpp"

namespace troupe::planners {

/// A list of jobs in two parts: those that a wrapped policy sees, and those that its wrapper places
/// (decoders, trainings). Usually there are none of these, and `seen` is the list itself: a long
/// queue is not copied for every decision. Refers to the list.
class split_views {
 public:
  template <class predicate>
  split_views(const job_views& all, predicate is_own) : all_{all} {
    any_ = std::ranges::any_of(all, [&](const auto& entry) { return is_own(entry.second); });
    if (!any_) return;
    for (const auto& [id, j] : all) {
      auto& part = is_own(j) ? own_ : seen_;
      part.emplace_hint(part.end(), id, j);
    }
  }
  bool any_own() const { return any_; }
  const job_views& own() const { return own_; }
  const job_views& seen() const { return any_ ? seen_ : all_; }

 private:
  const job_views& all_;
  bool any_ = false;
  job_views seen_, own_;
};

}  // namespace troupe::planners
