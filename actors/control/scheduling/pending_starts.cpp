#include "actors/control/scheduling/pending_starts.hpp"

#include <algorithm>

#include "messages/base/invariant.hpp"
#include "planners/plans/fits.hpp"

namespace troupe::actors {

/// In the order of jobs' numbers; each takes its GPUs, so that two never start on the same.
std::vector<planners::decision> pending_starts::possible(const cluster& c,
                                                         const planners::idle_index& idle) const {
  std::vector<planners::decision> out;
  planners::remaining_idle left{idle};
  // Its GPUs first: a refusal has a sentence, which nobody reads here.
  const auto is_free = [&](const node_share& share) {
    return share.node < c.nodes.size() && share.gpus <= left->idle(share.node);
  };
  for (const auto& [job, d] : starts_) {
    if (!std::ranges::all_of(d.where, is_free)) continue;
    if (!planners::fits(c, *left, d.how, d.where)) continue;
    TROUPE_INVARIANT(d.job == job, "a start that waits is found by its job");
    out.push_back(d);
    left.take(d.where);
  }
  return out;
}

/// Idle GPUs that the reservation has to share are counted for each start: this errs towards
/// waiting.
std::vector<job_id> pending_starts::hopeless(const planners::idle_index& idle,
                                             const std::vector<std::uint32_t>& freed) const {
  std::vector<job_id> out;
  for (const auto& [job, d] : starts_)
    if (std::ranges::any_of(d.where, [&](const node_share& share) {
          TROUPE_INVARIANT(share.node < freed.size(),
                           "a start that waits is for nodes of the present cluster");
          return idle.idle(share.node) + freed[share.node] < share.gpus;
        }))
      out.push_back(job);
  return out;
}

const planners::idle_index& pending_starts::rest(const planners::idle_index& idle,
                                                 std::optional<planners::idle_index>& room) const {
  if (starts_.empty()) return idle;
  room.emplace(idle);
  for (const auto& [job, d] : starts_) take(*room, d.where);
  return *room;
}

}  // namespace troupe::actors
