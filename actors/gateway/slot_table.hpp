#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "messages/base/invariant.hpp"

namespace troupe::actors {

/// Values by number. Numbers of erased ones are reused, so that what has ended leaves nothing
/// behind.
template <class T>
class slot_table {
 public:
  std::uint32_t add(T value) {
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(all_.size()));
      all_.emplace_back();
    }
    const auto number = free_.back();
    TROUPE_INVARIANT(number < all_.size(), "a free slot is one of the table");
    free_.pop_back();
    all_[number] = std::move(value);
    return number;
  }
  void erase(std::uint32_t number) {
    TROUPE_INVARIANT(number < all_.size() && free_.size() < all_.size(),
                     "a slot is freed once, after it was given");
    all_[number] = {};
    free_.push_back(number);
  }
  T& operator[](std::uint32_t number) {
    TROUPE_INVARIANT(number < all_.size(), "a slot's number is one that the table has given");
    return all_[number];
  }
  std::size_t size() const { return all_.size() - free_.size(); }

 private:
  std::deque<T> all_;
  std::vector<std::uint32_t> free_;
};

}  // namespace troupe::actors
