#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "messages/cluster.hpp"

namespace troupe::planners {

/// Idle GPUs of a cluster, kept in the order in which planners look for them, so that a decision does
/// not slow down with the cluster: for each memory class, nodes by idle count, then by name.
/// Updates are O(log nodes); so is every question below.
class idle_index {
 public:
  explicit idle_index(const cluster& c);

  void set_idle(node_index n, std::uint32_t idle);
  std::uint32_t idle(node_index n) const { return idle_[n]; }
  std::uint32_t idle_of(gpu_index g) const { return idle_of_type_[g]; }
  std::uint32_t total_idle() const { return total_; }

  /// Idle GPUs whose memory is more than `bytes`.
  std::uint32_t idle_above(double bytes) const;
  // (the author adds what HAS needs to walk nodes in order)

 private:
  std::vector<std::uint32_t> idle_, idle_of_type_;
  std::uint32_t total_ = 0;
};

}  // namespace troupe::planners
