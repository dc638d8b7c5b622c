#include "planners/troupe/pool_capacity.hpp"

#include <algorithm>
#include <limits>

namespace troupe::planners {

pool_capacity::pool_capacity(const gpu_pool& p, const free_gpus& free) {
  for (std::uint32_t n = 1; n < p.node_gpus; n *= 2) size_.push_back(n);
  size_.push_back(p.node_gpus);
  taken_.assign(size_.size(), 0);
  update(p, free);
}

void pool_capacity::update(const gpu_pool& p, const free_gpus& free) {
  left_.assign(size_.size(), 0);
  for (const auto n : p.nodes)
    for (std::size_t k = 0; k < size_.size(); ++k) left_[k] += free.of(n) / size_[k];
  for (std::size_t k = 0; k < size_.size(); ++k) left_[k] -= taken_[k];
}

std::size_t pool_capacity::classes_for(std::uint32_t gpus) const {
  std::size_t k = 0;
  while (k < size_.size() && size_[k] <= gpus) ++k;
  return k;
}

// Counts of 2^k GPUs behave like blocks of a buddy allocator: a block of a size is made of two of
// the half, and packing the largest first leaves no holes. It is then enough to count, for each
// size, how many blocks of it are free, and to subtract from all smaller sizes what a count takes.
//
// Blocks of a size that a count takes up: whole nodes hold `node / size` blocks each.
bool pool_capacity::fits(std::uint32_t gpus) const {
  const auto node = size_.back();
  for (std::size_t k = 0; k < classes_for(gpus); ++k) {
    const auto blocks = gpus < node ? gpus / size_[k] : gpus / node * (node / size_[k]);
    if (left_[k] < blocks) return false;
  }
  return true;
}

bool pool_capacity::is_valid() const {
  return std::ranges::all_of(left_, [](auto blocks) { return blocks >= 0; });
}

void pool_capacity::add(std::uint32_t gpus, int sign) {
  const auto node = size_.back();
  for (std::size_t k = 0; k < classes_for(gpus); ++k) {
    const auto blocks = gpus < node ? gpus / size_[k] : gpus / node * (node / size_[k]);
    left_[k] -= sign * std::int64_t{blocks};
    taken_[k] += sign * std::int64_t{blocks};
  }
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
