#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <memory>
#include <utility>

#include "messages/base/invariant.hpp"

namespace troupe::actors {

/// An ordered map whose copies share structure: copying costs as much as copying a pointer, and a
/// change as much as the path from the root (a path-copying B-tree). A copy may be read in another
/// thread while the original changes. Pointers and iterators are valid until the map changes, or
/// while an earlier copy exists.
template <class K, class V>
class persistent_map {
  static constexpr std::size_t width = 16;

  struct node {
    std::size_t size = 0;
    std::array<K, width> keys{};  // of an inner node: the smallest of each child
  };
  using link = std::shared_ptr<const node>;
  struct leaf : node {
    std::array<std::shared_ptr<const V>, width> slots;
  };
  struct inner : node {
    std::array<link, width> slots;
  };

 public:
  class iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = std::pair<const K&, const V&>;
    using difference_type = std::ptrdiff_t;
    using reference = value_type;
    using pointer = void;

    value_type operator*() const { return {at_->keys[i_], *at_->slots[i_]}; }
    iterator& operator++() {
      if (++i_ == at_->size) *this = {map_, map_->leaf_above(at_->keys[i_ - 1])};
      return *this;
    }
    bool operator==(const iterator& other) const { return at_ == other.at_ && i_ == other.i_; }

   private:
    friend persistent_map;
    iterator(const persistent_map* map, const leaf* at) : map_{map}, at_{at} {}
    const persistent_map* map_;
    const leaf* at_;  // null: the end
    std::size_t i_ = 0;
  };

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  iterator begin() const { return {this, root_ ? first_leaf(root_.get(), height_) : nullptr}; }
  iterator end() const { return {this, nullptr}; }

  /// Null if there is none.
  const V* find(const K& key) const {
    if (!root_) return nullptr;
    const node* n = root_.get();
    for (auto height = height_; height > 0; --height)
      n = as_inner(*n).slots[child_of(*n, key)].get();
    const auto at = place_of(*n, key);
    return holds(*n, at, key) ? as_leaf(*n).slots[at].get() : nullptr;
  }
  bool contains(const K& key) const { return find(key) != nullptr; }
  /// The key must exist.
  const V& at(const K& key) const {
    const auto* value = find(key);
    TROUPE_INVARIANT(value != nullptr);
    return *value;
  }
  /// The largest key; the map must not be empty.
  const K& last_key() const {
    TROUPE_INVARIANT(!empty());
    const node* n = root_.get();
    for (auto height = height_; height > 0; --height) n = as_inner(*n).slots[n->size - 1].get();
    return n->keys[n->size - 1];
  }

  /// Inserts or replaces.
  void set(const K& key, V value) {
    auto shared = std::make_shared<const V>(std::move(value));
    if (!root_) root_ = std::make_shared<const leaf>();
    bool added = false;
    auto [first, second] = with(root_, height_, key, std::move(shared), added);
    root_ = std::move(first);
    size_ += added ? 1 : 0;
    if (!second) return;
    auto above = std::make_shared<inner>();
    put(*above, 0, root_->keys[0], root_);
    put(*above, 1, second->keys[0], second);
    root_ = std::move(above);
    ++height_;
  }

  /// False: there was no such key.
  bool erase(const K& key) {
    bool erased = false;
    if (root_) root_ = without(root_, height_, key, erased);
    size_ -= erased ? 1 : 0;
    if (!root_) height_ = 0;
    for (; height_ > 0 && root_->size == 1; --height_) root_ = link{as_inner(*root_).slots[0]};
    return erased;
  }

  friend bool operator==(const persistent_map& a, const persistent_map& b) {
    if (a.root_ == b.root_) return true;
    if (a.size_ != b.size_) return false;
    return std::equal(a.begin(), a.end(), b.begin(), [](const auto& x, const auto& y) {
      return x.first == y.first && (&x.second == &y.second || x.second == y.second);
    });
  }

 private:
  using split = std::pair<link, link>;  // the second is null, or follows the first

  static const leaf& as_leaf(const node& n) { return static_cast<const leaf&>(n); }
  static const inner& as_inner(const node& n) { return static_cast<const inner&>(n); }
  static std::size_t place_of(const node& n, const K& key) {
    const auto end = n.keys.begin() + n.size;
    return static_cast<std::size_t>(std::lower_bound(n.keys.begin(), end, key) - n.keys.begin());
  }
  static bool holds(const node& n, std::size_t at, const K& key) {
    return at < n.size && n.keys[at] == key;
  }
  /// The last child whose smallest key is not larger, or the first one.
  static std::size_t child_of(const node& n, const K& key) {
    const auto at = place_of(n, key);
    return holds(n, at, key) || at == 0 ? at : at - 1;
  }
  static const leaf* first_leaf(const node* n, std::size_t height) {
    for (; height > 0; --height) n = as_inner(*n).slots[0].get();
    return &as_leaf(*n);
  }

  /// The leaf after the one whose largest key this is.
  const leaf* leaf_above(const K& key) const {
    const leaf* above = nullptr;
    const node* n = root_.get();
    for (auto height = height_; height > 0; --height) {
      const auto at = child_of(*n, key);
      if (at + 1 < n->size) above = first_leaf(as_inner(*n).slots[at + 1].get(), height - 1);
      n = as_inner(*n).slots[at].get();
    }
    return above;
  }

  template <class Node, class Slot>
  static void put(Node& n, std::size_t at, const K& key, Slot slot) {
    TROUPE_INVARIANT(n.size < width && at <= n.size);
    TROUPE_INVARIANT((at == 0 || n.keys[at - 1] < key) && (at == n.size || key < n.keys[at]));
    std::move_backward(n.keys.begin() + at, n.keys.begin() + n.size, n.keys.begin() + n.size + 1);
    std::move_backward(n.slots.begin() + at, n.slots.begin() + n.size,
                       n.slots.begin() + n.size + 1);
    n.keys[at] = key;
    n.slots[at] = std::move(slot);
    ++n.size;
  }
  template <class Node>
  static void remove(Node& n, std::size_t at) {
    std::move(n.keys.begin() + at + 1, n.keys.begin() + n.size, n.keys.begin() + at);
    std::move(n.slots.begin() + at + 1, n.slots.begin() + n.size, n.slots.begin() + at);
    n.slots[--n.size] = nullptr;
  }

  template <class Node, class Slot>
  static split with_slot(const Node& old, std::size_t at, const K& key, Slot slot) {
    auto first = std::make_shared<Node>(old);
    if (old.size < width) {
      put(*first, at, key, std::move(slot));
      return {std::move(first), nullptr};
    }
    // If the key is the largest, the new node starts with it: ascending keys leave full nodes.
    const auto kept = at == width ? width : width / 2;
    auto second = std::make_shared<Node>();
    for (auto i = kept; i < width; ++i)
      put(*second, second->size, old.keys[i], std::move(first->slots[i]));
    first->size = kept;
    if (at <= kept && kept < width)
      put(*first, at, key, std::move(slot));
    else
      put(*second, at - kept, key, std::move(slot));
    return {std::move(first), std::move(second)};
  }

  static split with(const link& n, std::size_t height, const K& key, std::shared_ptr<const V> value,
                    bool& added) {
    if (height == 0) {
      const auto& old = as_leaf(*n);
      const auto at = place_of(old, key);
      added = !holds(old, at, key);
      if (added) return with_slot(old, at, key, std::move(value));
      auto copy = std::make_shared<leaf>(old);
      copy->slots[at] = std::move(value);
      return {std::move(copy), nullptr};
    }
    auto copy = std::make_shared<inner>(as_inner(*n));
    const auto at = child_of(*n, key);
    auto [first, second] = with(as_inner(*n).slots[at], height - 1, key, std::move(value), added);
    copy->keys[at] = first->keys[0];
    copy->slots[at] = std::move(first);
    if (!second) return {std::move(copy), nullptr};
    return with_slot(*copy, at + 1, second->keys[0], second);
  }

  /// Null: the subtree is empty.
  static link without(const link& n, std::size_t height, const K& key, bool& erased) {
    if (height == 0) {
      const auto at = place_of(*n, key);
      erased = holds(*n, at, key);
      if (!erased) return n;
      if (n->size == 1) return nullptr;
      auto copy = std::make_shared<leaf>(as_leaf(*n));
      remove(*copy, at);
      return copy;
    }
    const auto at = child_of(*n, key);
    auto rest = without(as_inner(*n).slots[at], height - 1, key, erased);
    if (!erased) return n;
    if (!rest && n->size == 1) return nullptr;
    auto copy = std::make_shared<inner>(as_inner(*n));
    if (rest) {
      copy->keys[at] = rest->keys[0];
      copy->slots[at] = std::move(rest);
    } else {
      remove(*copy, at);
    }
    return copy;
  }

  link root_;
  std::size_t height_ = 0, size_ = 0;  // height 0: the root is a leaf
};

}  // namespace troupe::actors
