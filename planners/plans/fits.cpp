#include "planners/plans/fits.hpp"

#include <algorithm>

#include "messages/base/refuse.hpp"
#include "planners/cost/layout.hpp"

namespace troupe::planners {

namespace {

expected<void> holds(const cluster& c, node_index n, double bytes) {
  const auto& gpu = c.gpu_of(n);
  if (gpu.memory_bytes() > bytes) return {};
  return refuse(reason::kind::infeasible, "needs more than {:.1f} GB per GPU; {} of {} has {:g}",
                bytes / bytes_per_gb, gpu.name, c.nodes[n].name, gpu.memory_gb);
}

// A GPU must have more memory than the plan needs, as in the listing of Frenzy's Algorithm 1; MARP
// and HAS compare in the same way, so that no plan of theirs is refused here.

/// Memory: every GPU needs the plan's bytes_per_gpu, or in a plan with stages its stage's.
expected<void> memory_fits(const cluster& c, const plan& how, const allocation& where) {
  if (how.stages.empty()) {
    for (const auto& share : where)
      if (auto ok = holds(c, share.node, how.bytes_per_gpu); !ok) return ok;
    return {};
  }
  const auto nodes = nodes_of_stages(c, where, how);
  if (!nodes) return refuse(nodes.error());
  auto node = nodes->begin();
  for (const auto& group : groups_of(how))
    for (std::uint32_t p = 0; p < group.pipelines; ++p)
      for (const auto& stage : group.stages)
        if (auto ok = holds(c, *node++, stage.bytes_per_gpu); !ok) return ok;
  return {};
}

}  // namespace

// Cheap and final checks first. The idle GPUs come last, so that `infeasible` (never) is not hidden
// by `insufficient` (not now).
expected<void> fits(const cluster& c, const idle_index& idle, const plan& how,
                    const allocation& where) {
  using kind = reason::kind;
  if (where.empty()) return refuse(kind::invalid, "the allocation is empty");
  std::uint64_t sum = 0;
  for (const auto& share : where) {
    if (share.node >= c.nodes.size())
      return refuse(kind::unknown, "no node has index {}", share.node);
    if (share.gpus == 0)
      return refuse(kind::invalid, "uses no GPU of {}", c.nodes[share.node].name);
    sum += share.gpus;
  }
  for (const auto& share : where)
    if (&*std::ranges::find(where, share.node, &node_share::node) != &share)
      return refuse(kind::invalid, "lists {} twice", c.nodes[share.node].name);
  if (sum != how.gpus())
    return refuse(kind::invalid, "the plan needs {} GPUs and the allocation has {}", how.gpus(),
                  sum);
  if (auto ok = memory_fits(c, how, where); !ok) return ok;
  for (const auto& share : where)
    if (share.gpus > idle.idle(share.node))
      return refuse(kind::insufficient, "needs {} GPUs of {}; {} are idle", share.gpus,
                    c.nodes[share.node].name, idle.idle(share.node));
  return {};
}

}  // namespace troupe::planners
