#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::planners {

/// A set of integers in [0, size) as bits, with a summary bit for each 64 below it: insert, erase
/// and both searches cost log64(size), and a copy is a few flat vectors. Policies copy the index of
/// idle GPUs in every decision; a balanced tree would allocate a node for each member, and its
/// searches would miss the cache at each level. 100,000 members are three levels, 1,600 words.
///
/// Invariant: a bit of level h + 1 is set if and only if its word of level h is not 0.
class bit_tree {
 public:
  static constexpr std::size_t none = ~std::size_t{0};

  explicit bit_tree(std::size_t size) {
    do {
      size = (size + 63) / 64;
      levels_.emplace_back(size == 0 ? 1 : size);
    } while (size > 1);
  }

  /// Stops at the first summary that is set already: those above it are, too.
  void insert(std::size_t i) {
    for (auto& level : levels_) {
      const bool was_empty = level[i / 64] == 0;
      level[i / 64] |= bit(i);
      if (!was_empty) return;
      i /= 64;
    }
  }

  /// Stops at the first word that has other members.
  void erase(std::size_t i) {
    for (auto& level : levels_) {
      level[i / 64] &= ~bit(i);
      if (level[i / 64] != 0) return;
      i /= 64;
    }
  }

  /// The first member that is at least i, or none. Climbs until a word has a bit at or behind the
  /// position, then descends along the lowest bits.
  std::size_t at_or_after(std::size_t i) const {
    for (std::size_t h = 0; h < levels_.size(); ++h) {
      const std::size_t word = i / 64;
      if (word >= levels_[h].size()) return none;
      if (const auto bits = levels_[h][word] & (~std::uint64_t{0} << (i % 64)); bits != 0) {
        i = word * 64 + static_cast<std::size_t>(std::countr_zero(bits));
        while (h-- > 0) i = i * 64 + static_cast<std::size_t>(std::countr_zero(levels_[h][i]));
        return i;
      }
      i = word + 1;
    }
    return none;
  }

  /// The last member that is less than i (or of all, for i = none), or none. The mirror image of
  /// at_or_after.
  std::size_t before(std::size_t i) const {
    if (i > levels_[0].size() * 64) i = levels_[0].size() * 64;
    for (std::size_t h = 0; h < levels_.size(); ++h) {
      if (i == 0) return none;
      const std::size_t word = (i - 1) / 64;
      if (const auto bits = levels_[h][word] & (~std::uint64_t{0} >> (63 - (i - 1) % 64));
          bits != 0) {
        i = word * 64 + highest(bits);
        while (h-- > 0) i = i * 64 + highest(levels_[h][i]);
        return i;
      }
      i = word;
    }
    return none;
  }

 private:
  static std::uint64_t bit(std::size_t i) { return std::uint64_t{1} << (i % 64); }
  static std::size_t highest(std::uint64_t w) {
    return 63 - static_cast<std::size_t>(std::countl_zero(w));
  }

  std::vector<std::vector<std::uint64_t>> levels_;  // the bits first, then the summaries
};

}  // namespace troupe::planners
