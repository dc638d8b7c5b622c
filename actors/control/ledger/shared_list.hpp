#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "messages/base/invariant.hpp"

namespace troupe::actors {

/// A list that changes at its end only, and whose copies share all else: a copy, an addition and a
/// replacement of the last element cost the same however long it is. A copy may be read in another
/// thread while the original changes.
template <class T>
class shared_list {
  struct link {
    T value;
    std::size_t size = 0;  // of the list that ends here
    std::shared_ptr<link> before{};

    // One by one: as many destructors inside each other as a long list has elements would be too
    // many for a stack.
    ~link() {
      while (before && before.use_count() == 1) before = std::exchange(before->before, nullptr);
    }
    link(T v, std::shared_ptr<link> b)
        : value{std::move(v)}, size{b ? b->size + 1 : 1}, before{std::move(b)} {}
    link(const link&) = delete;
    link& operator=(const link&) = delete;
  };

 public:
  shared_list() = default;
  explicit shared_list(const std::vector<T>& all) {
    for (const auto& value : all) push_back(value);
  }

  std::size_t size() const { return last_ ? last_->size : 0; }
  bool empty() const { return !last_; }
  /// The list must not be empty.
  const T& back() const {
    TROUPE_INVARIANT(last_ != nullptr, "the last element is read of a list that has one");
    return last_->value;
  }
  void push_back(T value) { last_ = std::make_shared<link>(std::move(value), std::move(last_)); }
  void replace_back(T value) {
    TROUPE_INVARIANT(last_ != nullptr, "the last element is replaced in a list that has one");
    last_ = std::make_shared<link>(std::move(value), last_->before);
  }
  /// All elements, the first one first.
  std::vector<T> all() const {
    std::vector<T> result(size());
    auto at = size();
    for (const auto* l = last_.get(); l; l = l->before.get()) result[--at] = l->value;
    return result;
  }

  friend bool operator==(const shared_list& a, const shared_list& b) {
    if (a.size() != b.size()) return false;
    const auto *x = a.last_.get(), *y = b.last_.get();
    for (; x != y; x = x->before.get(), y = y->before.get())
      if (!(x->value == y->value)) return false;
    return true;
  }

 private:
  std::shared_ptr<link> last_;
};

}  // namespace troupe::actors
