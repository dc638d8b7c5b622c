#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace troupe::gpu {

/// The merges of a byte pair encoding.
class merge_table {
 public:
  /// A merge of two tokens into `token`; a lower rank comes first. Of equal pairs the first counts.
  void add(std::uint32_t first, std::uint32_t second, std::uint32_t rank, std::uint32_t token) {
    merges_.try_emplace(pair_of(first, second), merge{rank, token});
  }

  /// A word's tokens once no two neighbours can be merged: each time the merge of the lowest rank,
  /// of several the leftmost. n log n steps for n tokens, since one word may be a whole request.
  std::vector<std::uint32_t> apply(const std::vector<std::uint32_t>& word) const;

  /// How many possible merges apply() has put into its queue and taken out on this thread: the work
  /// of an encoding, for tests that may not look at a clock.
  static std::uint64_t queue_operations();

 private:
  struct merge {
    std::uint32_t rank = 0, token = 0;
  };

  static std::uint64_t pair_of(std::uint32_t first, std::uint32_t second) {
    return std::uint64_t{first} << 32 | second;
  }

  std::unordered_map<std::uint64_t, merge> merges_;
};

}  // namespace troupe::gpu
