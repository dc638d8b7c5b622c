#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "messages/base/find_in.hpp"
#include "messages/base/invariant.hpp"
#include "planners/cluster/idle_index.hpp"
#include "planners/policy/policy.hpp"

namespace troupe::actors {

/// Starts that were decided and wait for GPUs to be released. Their GPUs are reserved. Kept in
/// memory only: after a restart the policy decides again.
class pending_starts {
 public:
  void add(planners::decision start) {
    TROUPE_INVARIANT(start.what == planners::decision::kind::start && !start.where.empty(),
                     "a start that waits names its GPUs");
    starts_[start.job] = std::move(start);
  }
  void remove(job_id job) { starts_.erase(job); }
  const planners::decision* find(job_id job) const { return find_in(starts_, job); }
  bool empty() const { return starts_.empty(); }

  /// The starts whose GPUs are idle now.
  std::vector<planners::decision> possible(const cluster& c,
                                           const planners::idle_index& idle) const;
  /// The starts that wait for GPUs that are neither idle nor, by node, being released.
  std::vector<job_id> hopeless(const planners::idle_index& idle,
                               const std::vector<std::uint32_t>& freed) const;
  /// The idle GPUs without the reserved ones; stored in `room` if they differ from `idle`.
  const planners::idle_index& rest(const planners::idle_index& idle,
                                   std::optional<planners::idle_index>& room) const;

 private:
  std::map<job_id, planners::decision> starts_;
};

}  // namespace troupe::actors
