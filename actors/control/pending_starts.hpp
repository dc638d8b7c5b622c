#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "messages/invariant.hpp"
#include "planners/core/idle_index.hpp"
#include "planners/core/policy.hpp"

namespace troupe::actors {

/// Decided starts that wait for GPUs being freed. Their GPUs are reserved. Kept in memory only: a
/// restarted controller decides again.
class pending_starts {
 public:
  void add(planners::decision start) {
    TROUPE_INVARIANT(start.what == planners::decision::kind::start && !start.where.empty());
    starts_[start.job] = std::move(start);
  }
  void remove(job_id job) { starts_.erase(job); }
  const planners::decision* find(job_id job) const;
  bool empty() const { return starts_.empty(); }

  /// Those whose GPUs are idle now.
  std::vector<planners::decision> possible(const cluster& c,
                                           const planners::idle_index& idle) const;
  /// Those waiting for GPUs that are neither idle nor, by node, being freed.
  std::vector<job_id> hopeless(const planners::idle_index& idle,
                               const std::vector<std::uint32_t>& freed) const;
  /// The idle GPUs that are not reserved; stored in `room` if they differ from `idle`.
  const planners::idle_index& rest(const planners::idle_index& idle,
                                   std::optional<planners::idle_index>& room) const;

 private:
  std::map<job_id, planners::decision> starts_;
};

}  // namespace troupe::actors
