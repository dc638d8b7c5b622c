#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <utility>

#include "messages/base/find_in.hpp"

namespace troupe::actors {

/// The newest keys with a value each; the oldest are forgotten, so that what a peer sends late or
/// repeatedly can be answered without memory that grows. A key's age is that of its first value.
template <class Key, class Value, std::size_t max>
class recent_map {
 public:
  void add(const Key& k, Value v) {
    if (!all_.insert_or_assign(k, std::move(v)).second) return;
    order_.push_back(k);
    if (order_.size() > max) forget_oldest();
  }
  void forget_oldest() {
    all_.erase(order_.front());
    order_.pop_front();
  }
  /// Null: it is not known, or no longer.
  const Value* find(const Key& k) const { return find_in(all_, k); }

 private:
  std::map<Key, Value> all_;
  std::deque<Key> order_;
};

}  // namespace troupe::actors
