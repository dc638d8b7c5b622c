#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::runtime {

/// A 4-ary heap of (time, sequence): half as deep as a binary one, and siblings are adjacent in
/// memory. Sequence numbers increase, so the order is total.
class event_heap {
 public:
  struct entry {
    std::int64_t time = 0;
    std::uint64_t sequence = 0;
    std::uint32_t slot = 0;

    /// A single comparison without branches: the result is unpredictable.
    bool before(const entry& o) const { return key() < o.key(); }

   private:
    __extension__ using wide = unsigned __int128;
    wide key() const {  // the flipped sign sorts negative times first
      constexpr auto sign = std::uint64_t{1} << 63;
      return wide{static_cast<std::uint64_t>(time) ^ sign} << 64 | sequence;
    }
  };

  bool empty() const { return entries_.empty(); }
  std::size_t size() const { return entries_.size(); }
  const entry& top() const { return entries_.front(); }

  void push(std::int64_t time, std::uint64_t sequence, std::uint32_t slot) {
    std::size_t at = entries_.size();
    entries_.emplace_back();
    // The new entry has the largest sequence: it comes after all others of its time.
    while (at > 0) {
      const std::size_t parent = (at - 1) / 4;
      if (time >= entries_[parent].time) break;
      entries_[at] = entries_[parent];
      at = parent;
    }
    // Field by field: copying a whole entry would stall on the stores of its fields.
    auto& e = entries_[at];
    e.time = time;
    e.sequence = sequence;
    e.slot = slot;
  }

  void pop() {
    const entry last = entries_.back();
    entries_.pop_back();
    if (!entries_.empty()) sink(0, last);
  }

  /// Removes every entry for which `drop` holds, in linear time.
  template <class Predicate>
  void remove_if(Predicate drop) {
    std::erase_if(entries_, drop);
    for (std::size_t i = entries_.size() / 4 + 1; i-- > 0;)
      if (i < entries_.size()) sink(i, entries_[i]);
  }

  void clear() { entries_.clear(); }

 private:
  void sink(std::size_t at, entry e) {
    const std::size_t n = entries_.size();
    for (;;) {
      const std::size_t first = 4 * at + 1;
      if (first >= n) break;
      const std::size_t end = first + 4 < n ? first + 4 : n;
      std::size_t first_child = first;
      for (std::size_t c = first + 1; c < end; ++c)
        first_child = entries_[c].before(entries_[first_child]) ? c : first_child;
      if (!entries_[first_child].before(e)) break;
      entries_[at] = entries_[first_child];
      at = first_child;
    }
    entries_[at] = e;
  }

  std::vector<entry> entries_;
};

}  // namespace troupe::runtime
