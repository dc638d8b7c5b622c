#pragma once

#include <cstdint>
#include <vector>

#include "planners/cluster/gpu_pools.hpp"

namespace troupe::planners {

/// The room of docs/planners/troupe.md, rule 2, in GPUs and blocks of them.
///
/// Whether a set of counts (counts_of()) can be placed on a pool's free GPUs, whatever node each
/// of them is on in the end. Exact where node sizes are powers of two, since then each count
/// divides the next larger one; else it may promise too much.
class pool_capacity {
 public:
  pool_capacity(const gpu_pool& p, const free_gpus& free);

  bool fits(std::uint32_t gpus) const { return gpus <= largest_; }
  /// The largest count that fits, and with it all smaller ones.
  std::uint32_t largest() const { return largest_; }
  /// The same if these GPUs had not been taken.
  std::uint32_t largest_without(std::uint32_t gpus) const;
  void take(std::uint32_t gpus) { add(gpus, 1); }
  void give_back(std::uint32_t gpus) { add(gpus, -1); }
  std::uint32_t free() const { return static_cast<std::uint32_t>(left_.front()); }
  /// No more is taken than there is.
  bool is_valid() const;
  /// The GPUs of the nodes have changed for another reason; what was taken stays taken.
  void update(const gpu_pool& p, const free_gpus& free);

 private:
  void add(std::uint32_t gpus, int sign);
  std::int32_t blocks_of(std::uint32_t gpus, std::size_t k) const;

  // A class k a size: 1, 2, 4, ... GPUs within a node, and a whole node. left_: how many blocks of
  // that size are left for counts that are at least as large.
  std::vector<std::uint32_t> size_, of_node_;  // of_node_: how many of them a node has
  std::vector<std::int32_t> left_, taken_;
  std::uint32_t largest_ = 0;  // fits() is asked for every option of every job
};

/// When the GPUs of a pool become free that running jobs hold (rule 2). REQUIRES for until_s():
/// sort() after the last add().
class release_times {
 public:
  void add(double after_s, std::uint32_t gpus) { all_.push_back({after_s, gpus}); }
  void sort();
  /// Seconds until so many have been released; infinite if there are not as many.
  double until_s(std::uint32_t gpus) const;

 private:
  struct release {
    double after_s = 0;
    std::uint32_t gpus = 0;  // with those released before
  };
  std::vector<release> all_;
};

}  // namespace troupe::planners
