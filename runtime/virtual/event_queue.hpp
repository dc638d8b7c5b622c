#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "messages/base/invariant.hpp"
#include "runtime/virtual/event_heap.hpp"

namespace troupe::runtime {

/// Identifies an event of a queue; never reused.
struct event_id {
  std::uint32_t slot = 0;
  std::uint64_t sequence = 0;
};

enum class timer : std::uint8_t { none, ordinary, multi, request };

/// The key by which an actor cancels: a timer's type (ordinary) or number (the others).
struct timer_key {
  std::uint64_t actor = 0;
  std::uint64_t value = 0;
  timer kind = timer::none;

  bool operator==(const timer_key&) const = default;
};

/// Events by (time, order of adding), with an index for cancellation. The content of a cancelled
/// event is destroyed at once; its heap entry is stale, which its sequence number shows, and is
/// removed when it reaches the top, or by compaction when stale entries are the majority. Content:
/// a moved-from object must hold no resources.
template <class Content>
class event_queue {
 public:
  /// `key`: how the event's actor can cancel it. It replaces an event of the same key.
  event_id add(std::int64_t time, Content&& content, const timer_key& key = {}) {
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(slots_.size()));
      slots_.emplace_back();
    }
    const event_id id{free_.back(), ++sequence_};
    free_.pop_back();
    auto& s = slots_[id.slot];
    TROUPE_INVARIANT(s.sequence == 0, "a free slot has no event");
    s.sequence = id.sequence;
    s.content = std::move(content);
    heap_.push(time, id.sequence, id.slot);
    if (key.kind != timer::none) index(id.slot, key);
    return id;
  }

  /// False: there is no such event.
  bool cancel(event_id id) {
    if (id.sequence == 0 || slots_[id.slot].sequence != id.sequence) return false;
    drop(id.slot);
    compact();
    return true;
  }

  void cancel(const timer_key& key) {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return;
    drop(found->second);
    compact();
  }

  /// Removes all events of an actor that were added with a key.
  void cancel_all_of(std::uint64_t actor) {
    for (auto f = by_actor_.find(actor); f != by_actor_.end(); f = by_actor_.find(actor))
      drop(f->second);
    compact();
  }

  /// Linear in the number of slots.
  template <class Predicate>
  void cancel_if(Predicate which) {
    for (std::uint32_t i = 0; i < slots_.size(); ++i)
      if (slots_[i].sequence != 0 && which(slots_[i].content)) drop(i);
    compact();
  }

  /// The earliest event's entry, or null.
  const event_heap::entry* next() {
    while (!heap_.empty()) {
      const auto& top = heap_.top();
      if (slots_[top.slot].sequence == top.sequence) return &top;
      heap_.pop();
      TROUPE_INVARIANT(stale_ > 0, "an entry without an event is of one that was cancelled");
      --stale_;
    }
    return nullptr;
  }

  /// Removes the earliest event. Only after next() was not null.
  Content take() {
    const auto at = heap_.top().slot;
    TROUPE_INVARIANT(slots_[at].sequence == heap_.top().sequence,
                     "the event that is taken was not cancelled");
    heap_.pop();
    return release(at);
  }

  std::size_t size() const {
    TROUPE_INVARIANT(stale_ <= heap_.size(), "cancelled events are among all in the heap");
    return heap_.size() - stale_;
  }

 private:
  static constexpr std::uint32_t no_slot = std::numeric_limits<std::uint32_t>::max();

  struct slot {
    std::uint64_t sequence = 0;  // of the event that is in it; 0: free
    Content content;
    timer_key key;  // kind none: not in the index
    std::uint32_t next_of_actor = no_slot, previous_of_actor = no_slot;
  };

  void index(std::uint32_t at, const timer_key& key) {
    if (const auto old = by_key_.find(key); old != by_key_.end()) drop(old->second);
    by_key_.emplace(key, at);
    auto& s = slots_[at];
    s.key = key;
    const auto [head, alone] = by_actor_.try_emplace(key.actor, at);
    if (alone) return;
    s.next_of_actor = head->second;
    slots_[head->second].previous_of_actor = at;
    head->second = at;
  }

  void unindex(std::uint32_t at) {
    auto& s = slots_[at];
    if (s.next_of_actor != no_slot) slots_[s.next_of_actor].previous_of_actor = s.previous_of_actor;
    if (s.previous_of_actor != no_slot) {
      slots_[s.previous_of_actor].next_of_actor = s.next_of_actor;
    } else if (s.next_of_actor != no_slot) {
      by_actor_[s.key.actor] = s.next_of_actor;
    } else {
      by_actor_.erase(s.key.actor);
    }
    s.next_of_actor = s.previous_of_actor = no_slot;
    by_key_.erase(s.key);
    s.key.kind = timer::none;
  }

  Content release(std::uint32_t at) {
    auto& s = slots_[at];
    TROUPE_INVARIANT(s.sequence != 0, "an event leaves the queue once");
    s.sequence = 0;
    if (s.key.kind != timer::none) unindex(at);
    Content content = std::move(s.content);  // a moved-from content needs no destruction
    free_.push_back(at);
    return content;
  }

  /// Destroying the content may run an actor's exit handlers, which may add and cancel: do it last.
  void drop(std::uint32_t at) {
    ++stale_;
    const Content content = release(at);
  }

  void compact() {
    if (stale_ < 1024 || stale_ * 2 < heap_.size()) return;
    heap_.remove_if(
        [this](const event_heap::entry& e) { return slots_[e.slot].sequence != e.sequence; });
    stale_ = 0;
  }

  struct key_hash {
    std::size_t operator()(const timer_key& k) const {
      std::uint64_t h = k.actor * 0x9e3779b97f4a7c15ULL;
      h ^= (k.value + static_cast<std::uint64_t>(k.kind)) * 0xd1342543de82ef95ULL;
      return h ^ (h >> 32);
    }
  };

  event_heap heap_;
  std::vector<slot> slots_;
  std::vector<std::uint32_t> free_;
  // Never iterated: the order is not deterministic.
  std::unordered_map<timer_key, std::uint32_t, key_hash> by_key_;
  std::unordered_map<std::uint64_t, std::uint32_t> by_actor_;
  std::uint64_t sequence_ = 0;
  std::size_t stale_ = 0;  // heap entries whose event was cancelled
};

}  // namespace troupe::runtime
