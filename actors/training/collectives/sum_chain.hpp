#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "messages/base/invariant.hpp"

namespace troupe::actors {

/// Who sums what of one stage's gradients, for members in one or several datacenters.
///
/// Consecutive members in one datacenter are a run. Gradients are cut into chunks; in each run
/// every chunk has an owner, to which the run's members send their parts. The owner in the first
/// run adds them in the order of the members and sends the sum to the chunk's owner in the next
/// run, which goes on adding; the last run's owner has the sum of all, and it goes back the same
/// way. So the additions are ((p0 + p1) + p2) + ... wherever the members are, and each boundary
/// between two runs is crossed once in each direction. With one run this is a reduce-scatter and an
/// all-gather.
///
/// The longest run's members own one chunk each, those of shorter runs several, which follow each
/// other, so that a chunk's way through the runs overlaps with the next one's.
class sum_chain {
 public:
  static constexpr std::uint64_t value_bytes = 4;  // 32-bit floats

  struct range {
    std::uint64_t first = 0, size = 0;  // bytes
  };

  sum_chain() = default;
  /// `datacenters`: by member; empty: all are in one.
  sum_chain(std::uint32_t members, std::uint32_t self,
            const std::vector<std::uint32_t>& datacenters) {
    TROUPE_INVARIANT(self < members, "a member is one of those that sum");
    TROUPE_INVARIANT(datacenters.empty() || datacenters.size() == members,
                     "each member is in a datacenter");
    runs_.clear();
    for (std::uint32_t m = 0; m < members; ++m) {
      if (m == 0 || (!datacenters.empty() && datacenters[m] != datacenters[m - 1]))
        runs_.push_back({m, 0});
      ++runs_.back().size;
      if (m == self) own_ = runs_.size() - 1;
    }
    for (const auto& r : runs_) longest_ = std::max(longest_, r.size);
  }

  /// The gradients are so large: chunks that go from run to run have at most `max_chunk` bytes.
  void set_size(std::uint64_t bytes, std::uint64_t max_chunk) {
    bytes_ = bytes;
    pieces_ = 1;
    if (runs_.size() > 1) pieces_ += bytes / longest_ / std::max(max_chunk, value_bytes);
  }

  bool is_first() const { return own_ == 0; }
  bool is_last() const { return own_ + 1 == runs_.size(); }

  // The own run's members, which are numbered among all.
  std::uint32_t first_member() const { return runs_[own_].first; }
  std::uint32_t end_member() const { return runs_[own_].first + runs_[own_].size; }
  bool is_near(std::uint32_t member) const {
    return member >= first_member() && member < end_member();
  }

  /// The chunks of a member, from the first to before the second.
  std::pair<std::uint32_t, std::uint32_t> chunks_of(std::uint32_t member) const {
    const auto& r = run_with(member);
    const auto local = std::uint64_t{member - r.first};
    const auto begin = [&](std::uint64_t i) {
      return static_cast<std::uint32_t>((i * longest_ + r.size - 1) / r.size * pieces_);
    };
    return {begin(local), begin(local + 1)};
  }
  /// A chunk's owner in the next run, or in the one before. REQUIRES: there is one.
  std::uint32_t next_owner(std::uint32_t chunk) const { return owner(runs_[own_ + 1], chunk); }
  std::uint32_t previous_owner(std::uint32_t chunk) const { return owner(runs_[own_ - 1], chunk); }

  /// Chunks are whole values, differ by at most one value, and cover the gradients without a gap,
  /// also when there are more chunks than values.
  range chunk(std::uint32_t c) const { return between(c, c + 1); }
  /// All chunks of a member.
  range part_of(std::uint32_t member) const {
    const auto [first, end] = chunks_of(member);
    return between(first, end);
  }

 private:
  struct run {
    std::uint32_t first = 0, size = 0;  // members
  };
  const run& run_with(std::uint32_t member) const {
    auto at = runs_.begin();
    while (member >= at->first + at->size) ++at;
    return *at;
  }
  std::uint32_t owner(const run& r, std::uint32_t chunk) const {
    return r.first + static_cast<std::uint32_t>(std::uint64_t{chunk} / pieces_ * r.size / longest_);
  }
  range between(std::uint64_t first, std::uint64_t end) const {
    const auto values = bytes_ / value_bytes, all = std::uint64_t{longest_} * pieces_;
    const auto from = values * first / all, to = values * end / all;
    return {from * value_bytes, (to - from) * value_bytes};
  }

  std::vector<run> runs_{{0, 1}};
  std::size_t own_ = 0;        // run
  std::uint32_t longest_ = 1;  // run's members
  std::uint64_t pieces_ = 1;   // chunks of each of these
  std::uint64_t bytes_ = 0;
};

}  // namespace troupe::actors
