#pragma once

#include <cstdint>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/plan.hpp"
#include "planners/cluster/idle_index.hpp"

// For policies that decide first how many GPUs of which kind a job gets, and then on which nodes
// (sia, gandiva, gavel, elasticflow, crius, troupe). Choosing both at a time would multiply each
// job's choices by the nodes; GPUs of a pool are alike, so that the cost model's answer for a count
// is the same wherever it is packed. Counts are GPUs.

namespace troupe::planners {

/// GPUs that are alike: one type, in nodes of one size, of one datacenter. A pool is identified by
/// its index in pools_of().
struct gpu_pool {
  gpu_index gpu = 0;
  std::uint32_t datacenter = 0;
  std::uint32_t node_gpus = 0;
  std::uint32_t capacity = 0;     // GPUs that can be handed out
  std::vector<node_index> nodes;  // by index

  /// Whether all GPUs of an allocation are of this pool. O(nodes of `where` * log nodes).
  bool contains(const allocation& where) const;
  /// Whether the pool has this number of GPUs with the same number on each node.
  bool has_equal(std::uint32_t gpus) const;
};

/// Every GPU of the cluster is in one pool. In the order of their first nodes; capacity: idle GPUs.
std::vector<gpu_pool> pools_of(const cluster& c, const idle_index& idle);

/// Counts of GPUs to choose from: 1, 2, 4, ... within a node; whole nodes: 1 to 8 of them, then
/// doubling. These are Sia's configurations but for the doubling, which keeps the list short on
/// large pools. Where node sizes are powers of two each count divides the next larger one, so that
/// counts can be packed without holes, the largest first.
std::vector<std::uint32_t> counts_of(const gpu_pool& p);

/// `gpus` GPUs of the pool as if it were empty: whole nodes, and the rest on one more. The cost
/// model is asked about such allocations before any node is chosen.
allocation pack(const gpu_pool& p, std::uint32_t gpus);

/// Whether two allocations have the same GPUs, in whatever order of nodes.
bool same_nodes(allocation a, allocation b);

/// The GPUs of each node that a policy may hand out: a plain count per node, without an index,
/// because policies that decide by pool visit all nodes of a pool anyway. Cheap to copy for a
/// trial. REQUIRES for take(): has() of the same allocation.
class free_gpus {
 public:
  free_gpus() = default;  // no cluster
  explicit free_gpus(const cluster& c, const idle_index& idle);

  std::uint32_t of(node_index n) const { return free_[n]; }
  bool has(const allocation& where) const;
  void take(const allocation& where);
  void give_back(const allocation& where);
  void give_back(const node_share& share) { free_[share.node] += share.gpus; }

  /// `gpus` GPUs of the pool: within the node that fits best, or whole nodes, or else as
  /// find_equal(), which a count of counts_of() never needs; on `present` if that is free and as
  /// many. Empty if there is no room.
  allocation find(const gpu_pool& p, std::uint32_t gpus, const allocation& present) const;
  /// Any number, the same on each node: of the fewest nodes that have them, which fit best. Empty
  /// if there is no room.
  allocation find_equal(const gpu_pool& p, std::uint32_t gpus) const;

 private:
  std::vector<std::uint32_t> free_;
};

/// A number of GPUs of a pool for one job, and the nodes that it gets.
struct count_grant {
  std::uint32_t pool = 0;
  std::uint32_t gpus = 0;
  const allocation* present = nullptr;  // where it runs
  bool unchanged = false;               // it goes on as it is, if its GPUs are free
  bool equal = false;                   // any number, the same on each node (find_equal)
  allocation where{};                   // the answer; empty: there was no room
};

/// The common end of a policy that decides by counts.
///
/// Finds nodes for all grants, pool by pool, the grants of one pool in the given order (the largest
/// first leaves the fewest holes). A grant that is unchanged keeps its GPUs, unless the free ones
/// are too scattered for the others: then the pool is packed anew. Takes them from `free`.
void place_counts(const std::vector<gpu_pool>& pools, std::vector<count_grant>& grants,
                  free_gpus& free);

}  // namespace troupe::planners
