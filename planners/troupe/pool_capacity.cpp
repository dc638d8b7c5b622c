#include "planners/troupe/pool_capacity.hpp"

#include <algorithm>
#include <limits>

#include "messages/base/invariant.hpp"

namespace troupe::planners {

pool_capacity::pool_capacity(const gpu_pool& p, const free_gpus& free) {
  for (std::uint32_t n = 1; n < p.node_gpus; n *= 2) size_.push_back(n);
  size_.push_back(p.node_gpus);
  for (const auto size : size_) of_node_.push_back(p.node_gpus / size);
  left_.assign(size_.size(), 0);
  taken_ = left_;
  update(p, free);
}

// Nodes are many and their numbers of free GPUs few: those with the same number are counted first.
void pool_capacity::update(const gpu_pool& p, const free_gpus& free) {
  std::vector<std::int32_t> nodes_with(p.node_gpus + 1);
  for (const auto n : p.nodes) {
    if (free.of(n) >= nodes_with.size()) nodes_with.resize(free.of(n) + 1);
    ++nodes_with[free.of(n)];
  }
  for (std::size_t k = 0; k < size_.size(); ++k) {
    left_[k] = -taken_[k];
    for (std::uint32_t f = size_[k]; f < nodes_with.size(); ++f)
      left_[k] += nodes_with[f] * static_cast<std::int32_t>(f / size_[k]);
  }
  largest_ = largest_without(0);
}

// Counts of 2^k GPUs behave like blocks of a buddy allocator: a block of a size is made of two of
// the half, and packing the largest first leaves no holes. It is then enough to count, for each
// size, how many blocks of it are free, and to subtract from all smaller sizes what a count takes.
//
// Blocks of a size that a count takes up: whole nodes hold `node / size` blocks each.
std::int32_t pool_capacity::blocks_of(std::uint32_t gpus, std::size_t k) const {
  if (size_[k] > gpus) return 0;
  const auto node = size_.back();
  return static_cast<std::int32_t>(gpus < node ? gpus >> k : gpus / node * of_node_[k]);
}

// A larger count takes at least as many blocks of every size, so that one number says for all
// counts whether they fit: the smallest one up to which each size has blocks enough.
std::uint32_t pool_capacity::largest_without(std::uint32_t gpus) const {
  const auto node = size_.back();
  auto largest = std::numeric_limits<std::uint32_t>::max();
  for (std::size_t k = 0; k < size_.size(); ++k) {
    const auto left = static_cast<std::uint32_t>(std::max(0, left_[k] + blocks_of(gpus, k)));
    largest = std::min(largest, left < of_node_[k] ? (left + 1) * size_[k] - 1
                                                   : (left / of_node_[k] + 1) * node - 1);
  }
  return largest;
}

bool pool_capacity::is_valid() const {
  return std::ranges::all_of(left_, [](auto blocks) { return blocks >= 0; });
}

void pool_capacity::add(std::uint32_t gpus, int sign) {
  for (std::size_t k = 0; k < size_.size() && size_[k] <= gpus; ++k) {
    const auto blocks = sign * blocks_of(gpus, k);
    left_[k] -= blocks;
    taken_[k] += blocks;
    TROUPE_INVARIANT(taken_[k] >= 0, "a pool gets back what was taken of it");
  }
  largest_ = largest_without(0);
}

void release_times::sort() {
  std::ranges::sort(all_, {}, &release::after_s);
  for (std::size_t i = 1; i < all_.size(); ++i) all_[i].gpus += all_[i - 1].gpus;
}

double release_times::until_s(std::uint32_t gpus) const {
  const auto at = std::ranges::lower_bound(all_, gpus, {}, &release::gpus);
  return at == all_.end() ? std::numeric_limits<double>::infinity() : at->after_s;
}

}  // namespace troupe::planners
