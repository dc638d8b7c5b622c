#include "planners/plans/mixed_plan.hpp"

#include <algorithm>

#include "messages/domain/work_kind.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/exact_gpus.hpp"
#include "planners/plans/has.hpp"
#include "planners/plans/places.hpp"

namespace troupe::planners {
namespace {

bool can_mix(const job_view& j, const plan& how) {
  return how.stages.empty() && how.bytes_per_gpu > j.history.bytes_floor;
}

}  // namespace

bool has_mixed_plan(const job_view& j) {
  return j.plans && std::ranges::any_of(*j.plans, [&](const plan& p) { return can_mix(j, p); });
}

// HAS (Frenzy, Algorithm 1) on the GPUs that the job may use, but keeping tensor groups within
// nodes.
std::optional<placed_plan> find_mixed_plan(const cluster& c, const idle_index& idle,
                                           const job_view& j,
                                           const std::function<bool(const allocation&)>& accepts) {
  if (!j.plans) return {};
  if (j.facts().exact_gpus) {
    auto p = place_exact(c, idle, j);
    return p && accepts(p->where) ? std::move(p) : std::nullopt;
  }
  std::optional<idle_index> restricted;
  const auto& allowed = allowed_idle(c, idle, *j.spec, restricted);
  const job_places places{c, *j.spec, *j.plans, j.history.bytes_floor};
  const job_rooms rooms{c, *j.spec, places, idle};
  for (const auto& how : *j.plans) {
    if (!can_mix(j, how) || allowed.idle_above(how.bytes_per_gpu) < how.gpus()) continue;
    auto where = rooms.first([&](const idle_index& some) -> std::optional<allocation> {
      auto found = best_fit(some, how.gpus(), some.types_above(how.bytes_per_gpu),
                            how.tensor_in_node ? how.tensor_parallel : 1);
      if (found.empty() || !accepts(found)) return {};
      return found;
    });
    if (where) return placed_plan{how, std::move(*where)};
  }
  return {};
}

}  // namespace troupe::planners
