#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <tuple>
#include <utility>

#include "messages/wire/generation.hpp"

namespace troupe::actors {

/// A request of a front, whatever the attempt.
struct request_key {
  address front = 0;
  std::uint64_t incarnation = 0, number = 0;

  auto operator<=>(const request_key&) const = default;
};
inline request_key key_of(const request_name& n) {
  return {n.front, n.incarnation, n.number};
}

/// How the latest requests ended, so that a late or repeated message cannot begin an attempt again
/// that has ended: it gets the same answer. The oldest are forgotten.
class ended_requests {
 public:
  static constexpr std::size_t max_requests = 8192;

  /// ended: the ending of its newest attempt.
  void add(const generated& ended) {
    const auto [at, fresh] = all_.insert_or_assign(key_of(ended.name), ended);
    if (fresh) order_.push_back(at->first);
    if (order_.size() <= max_requests) return;
    all_.erase(order_.front());
    order_.pop_front();
  }

  /// The ending of this attempt, or of a later one; null: it has not ended.
  const generated* find(const request_name& n) const {
    const auto at = all_.find(key_of(n));
    return at == all_.end() || at->second.name.attempt < n.attempt ? nullptr : &at->second;
  }

 private:
  std::map<request_key, generated> all_;
  std::deque<request_key> order_;
};

}  // namespace troupe::actors
