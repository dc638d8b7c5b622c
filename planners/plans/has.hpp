#pragma once

#include <optional>
#include <span>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/plan.hpp"
#include "planners/cluster/idle_index.hpp"

namespace troupe::planners {

struct has_choice {
  std::size_t plan = 0;  // index into the plans
  allocation where;
};

/// Heterogeneity-Aware Scheduling (Frenzy, Algorithm 1): the first plan that the idle GPUs can
/// serve, and the best fit for it. Plans that need at most `bytes_floor` are skipped. Fails as
/// insufficient if the idle GPUs serve no plan, as infeasible if the floor excludes all plans.
expected<has_choice> has(const cluster& c, const idle_index& idle, std::span<const plan> plans,
                         double bytes_floor = 0);

/// Why the idle GPUs serve none of these plans.
reason why_unserved(const idle_index& idle, std::span<const plan> plans, double bytes_floor = 0);

/// First half: the first plan that the idle GPUs can serve. O(plans * GPU types).
std::optional<std::size_t> first_servable(const idle_index& idle, std::span<const plan> plans,
                                          double bytes_floor = 0);

/// Second half: `gpus` idle GPUs with more than `bytes` of memory, by best fit; there must be
/// enough. O((GPU types + log nodes) * nodes taken).
allocation best_fit(const idle_index& idle, std::uint32_t gpus, double bytes);
/// The same over given types (in order of memory), taking multiples of `group` from every node.
/// Empty if that is impossible.
allocation best_fit(const idle_index& idle, std::uint32_t gpus, std::span<const gpu_index> types,
                    std::uint32_t group = 1);

}  // namespace troupe::planners
