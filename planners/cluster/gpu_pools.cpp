#include "planners/cluster/gpu_pools.hpp"

#include <algorithm>

#include "messages/base/invariant.hpp"

namespace troupe::planners {

bool gpu_pool::contains(const allocation& where) const {
  return std::ranges::all_of(
      where, [&](const node_share& n) { return std::ranges::binary_search(nodes, n.node); });
}

// The number of nodes must divide the GPUs, and each node must be large enough for its part.
bool gpu_pool::has_equal(std::uint32_t gpus) const {
  for (std::uint32_t n = 1; n <= nodes.size() && n <= gpus; ++n)
    if (gpus % n == 0 && gpus / n <= node_gpus) return true;
  return false;
}

// A cluster has a handful of pools: a linear search per node is faster than a map.
std::vector<gpu_pool> pools_of(const cluster& c, const idle_index& idle) {
  std::vector<gpu_pool> pools;
  for (node_index n = 0; n < c.nodes.size(); ++n) {
    const auto& node = c.nodes[n];
    if (node.gpus == 0) continue;
    auto at = std::ranges::find_if(pools, [&](const gpu_pool& p) {
      return p.gpu == node.gpu && p.node_gpus == node.gpus && p.datacenter == node.datacenter;
    });
    if (at == pools.end()) at = pools.insert(at, {node.gpu, node.datacenter, node.gpus, 0, {}});
    at->nodes.push_back(n);
    at->capacity += idle.idle(n);
  }
  return pools;
}

std::vector<std::uint32_t> counts_of(const gpu_pool& p) {
  std::vector<std::uint32_t> counts;
  for (std::uint32_t n = 1; n < p.node_gpus; n *= 2) counts.push_back(n);
  for (std::size_t k = 1; k <= p.nodes.size(); k += k < 8 ? 1 : k)
    counts.push_back(static_cast<std::uint32_t>(k) * p.node_gpus);
  return counts;
}

// As place_counts would on an empty pool, so that estimates are of placements that exist.
allocation pack(const gpu_pool& p, std::uint32_t gpus) {
  allocation where;
  for (std::size_t i = 0; gpus > 0; ++i) {
    TROUPE_INVARIANT(i < p.nodes.size(), "a pool has the GPUs that are packed on it");
    const auto take = std::min(gpus, p.node_gpus);
    where.push_back({p.nodes[i], take});
    gpus -= take;
  }
  return where;
}

bool same_nodes(allocation a, allocation b) {
  std::ranges::sort(a, {}, &node_share::node);
  std::ranges::sort(b, {}, &node_share::node);
  return a == b;
}

free_gpus::free_gpus(const cluster& c, const idle_index& idle) : free_(c.nodes.size()) {
  for (node_index n = 0; n < free_.size(); ++n) free_[n] = idle.idle(n);
}

bool free_gpus::has(const allocation& where) const {
  return std::ranges::all_of(where, [&](const node_share& n) { return free_[n.node] >= n.gpus; });
}

void free_gpus::take(const allocation& where) {
  for (const auto& n : where) {
    TROUPE_INVARIANT(free_[n.node] >= n.gpus, "a node has the GPUs that are taken of it");
    free_[n.node] -= n.gpus;
  }
}

void free_gpus::give_back(const allocation& where) {
  for (const auto& n : where) free_[n.node] += n.gpus;
}

// Staying is free, moving costs a restart: the present place comes first. Within a node the fullest
// one that has room keeps the others whole for larger counts.
allocation free_gpus::find(const gpu_pool& p, std::uint32_t gpus, const allocation& present) const {
  if (total_gpus(present) == gpus && p.contains(present) && has(present)) return present;
  allocation where;
  if (gpus < p.node_gpus) {
    const node_index* best = nullptr;
    for (const auto& n : p.nodes)
      if (free_[n] >= gpus && (best == nullptr || free_[n] < free_[*best])) best = &n;
    if (best != nullptr) where.push_back({*best, gpus});
    return where;
  }
  if (gpus % p.node_gpus != 0) return find_equal(p, gpus);
  for (const auto n : p.nodes) {
    if (free_[n] != p.node_gpus) continue;
    where.push_back({n, p.node_gpus});
    if (where.size() * p.node_gpus == gpus) return where;
  }
  return {};
}

// Nodes by their free GPUs: from `first` on all have enough, and the first of these fit best.
allocation free_gpus::find_equal(const gpu_pool& p, std::uint32_t gpus) const {
  std::vector<node_index> by_free{p.nodes};
  std::ranges::stable_sort(by_free, {}, [&](node_index n) { return free_[n]; });
  for (std::uint32_t nodes = 1; nodes <= by_free.size() && nodes <= gpus; ++nodes) {
    if (gpus % nodes != 0) continue;
    const auto each = gpus / nodes;
    const auto first =
        std::ranges::lower_bound(by_free, each, {}, [&](auto n) { return free_[n]; });
    if (by_free.end() - first < static_cast<std::ptrdiff_t>(nodes)) continue;
    allocation where;
    for (auto at = first; where.size() < nodes; ++at) where.push_back({*at, each});
    return where;
  }
  return {};
}

namespace {

// Places the grants in order, and returns the number of those that found no room. `keep`: unchanged
// grants take their present GPUs before any other is placed.
std::size_t place(const gpu_pool& p, const std::vector<count_grant*>& grants, free_gpus& free,
                  bool keep) {
  std::size_t failed = 0;
  for (auto* g : grants) {
    g->where.clear();
    if (keep && g->unchanged && free.has(*g->present)) free.take(g->where = *g->present);
  }
  for (auto* g : grants) {
    if (!g->where.empty()) continue;
    g->where = g->equal ? free.find_equal(p, g->gpus)
                        : free.find(p, g->gpus, g->present ? *g->present : allocation{});
    free.take(g->where);
    failed += g->where.empty();
  }
  return failed;
}

}  // namespace

// Keeping costs nothing and moves no job, so it is tried first. Where it leaves somebody without
// GPUs although the count fits the pool, fragmentation is the cause, and packing from empty nodes
// cures it; it is accepted only if more grants find room, because every job that it moves restarts.
void place_counts(const std::vector<gpu_pool>& pools, std::vector<count_grant>& grants,
                  free_gpus& free) {
  std::vector<std::vector<count_grant*>> by_pool(pools.size());
  for (auto& g : grants) by_pool[g.pool].push_back(&g);
  for (std::size_t p = 0; p < by_pool.size(); ++p) {
    auto kept = free;
    if (const auto failed = place(pools[p], by_pool[p], kept, true); failed > 0) {
      auto packed = free;
      if (place(pools[p], by_pool[p], packed, false) < failed) {
        free = std::move(packed);
        continue;
      }
      kept = free;
      place(pools[p], by_pool[p], kept, true);
    }
    free = std::move(kept);
  }
}

}  // namespace troupe::planners
