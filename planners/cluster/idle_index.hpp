#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "planners/cluster/bit_tree.hpp"

namespace troupe::planners {

/// Idle GPUs of a cluster, indexed in the order in which planners search, so that decisions do not
/// slow down with the cluster: for each GPU type (types by memory), nodes by idle count, then by
/// name (the order of HAS: Frenzy, Algorithm 1). Updates and all queries below are O(log nodes). A
/// copy shares everything that is constant.
///
/// A type's nodes are a shelf, sorted by name; a node with k idle GPUs is the member
/// k * (size of the shelf) + (its rank on it) of the type's bit_tree. So the members' order is that
/// of (idle count, name), and "the first node with at least k" is one search.
class idle_index {
 public:
  explicit idle_index(const cluster& c);

  /// Counts above the node's size are clamped to it.
  void set_idle(node_index n, std::uint32_t idle);
  std::uint32_t idle(node_index n) const { return idle_[n]; }
  std::uint32_t idle_of(gpu_index g) const { return idle_of_type_[g]; }
  std::uint32_t total_idle() const { return total_; }

  /// Idle GPUs whose memory is more than `bytes`. O(GPU types).
  std::uint32_t idle_above(double bytes) const;

  /// GPU types by memory, then by index.
  std::span<const gpu_index> types_by_memory() const { return fixed_->types_by_memory; }
  /// The tail of types_by_memory whose memory is more than `bytes`.
  std::span<const gpu_index> types_above(double bytes) const;
  double memory_bytes(gpu_index g) const { return fixed_->memory_bytes[g]; }
  /// A node's position among all nodes sorted by name.
  std::uint32_t name_rank(node_index n) const { return fixed_->name_rank[n]; }

  // The nodes of a type that have idle GPUs, by idle count ascending, then by name. A position is
  // an index in that order, valid until the node's idle count changes.
  using position = std::size_t;
  static constexpr position none = bit_tree::none;
  /// The first node with at least `min` idle GPUs (min > 0), or none.
  position first_with(gpu_index g, std::uint32_t min) const;
  /// The next one in order, or none.
  position after(gpu_index g, position p) const { return trees_[g].at_or_after(p + 1); }
  /// The last one before p; before(g, none) is the node with the most idle GPUs. Or none.
  position before(gpu_index g, position p) const { return trees_[g].before(p); }
  node_index node_at(gpu_index g, position p) const {
    return fixed_->shelves[g][p % fixed_->shelves[g].size()];
  }

 private:
  struct layout {
    std::vector<gpu_index> types_by_memory;
    std::vector<double> memory_bytes;                        // by type
    std::vector<std::vector<node_index>> shelves;            // by type: nodes, sorted by name
    std::vector<std::uint32_t> name_rank, shelf_rank, gpus;  // by node
    std::vector<gpu_index> type;                             // by node
  };
  static std::shared_ptr<const layout> lay_out(const cluster& c);
  position place(node_index n, std::uint32_t idle) const;

  std::shared_ptr<const layout> fixed_;
  std::vector<bit_tree> trees_;  // by type, over idle * nodes of the type + shelf rank
  std::vector<std::uint32_t> idle_, idle_of_type_;
  std::uint32_t total_ = 0;
};

}  // namespace troupe::planners
