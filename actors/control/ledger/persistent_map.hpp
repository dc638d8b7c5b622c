#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "messages/base/invariant.hpp"

namespace troupe::actors {

/// An ordered map whose copies share structure: copying costs as much as copying a pointer, and a
/// change as much as the path from the root (a path-copying AVL tree). A copy may be read in
/// another thread while the original changes. Pointers and iterators are valid until the map
/// changes, or while an earlier copy exists.
template <class K, class V>
class persistent_map {
  struct node;
  using link = std::shared_ptr<const node>;
  struct node {
    K key;
    std::shared_ptr<const V> value;
    link left{}, right{};
    int height = 1;
  };

 public:
  class iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = std::pair<const K&, const V&>;
    using difference_type = std::ptrdiff_t;
    using reference = value_type;
    using pointer = void;

    value_type operator*() const { return {path_.back()->key, *path_.back()->value}; }
    iterator& operator++() {
      const auto* n = path_.back();
      path_.pop_back();
      descend(n->right.get());
      return *this;
    }
    bool operator==(const iterator& other) const { return path_ == other.path_; }

   private:
    friend persistent_map;
    explicit iterator(const node* root) { descend(root); }
    void descend(const node* n) {
      for (; n; n = n->left.get()) path_.push_back(n);
    }
    std::vector<const node*> path_;  // the node, and those above it whose left subtrees have it
  };

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  iterator begin() const { return iterator{root_.get()}; }
  iterator end() const { return iterator{nullptr}; }

  /// Null if there is none.
  const V* find(const K& key) const {
    const node* n = root_.get();
    while (n && n->key != key) n = (key < n->key ? n->left : n->right).get();
    return n ? n->value.get() : nullptr;
  }
  bool contains(const K& key) const { return find(key) != nullptr; }
  /// The key must exist.
  const V& at(const K& key) const {
    const auto* value = find(key);
    TROUPE_INVARIANT(value != nullptr, "a map has the key that is read");
    return *value;
  }
  /// The largest key; the map must not be empty.
  const K& last_key() const {
    TROUPE_INVARIANT(!empty(), "the last key is read of a map that has one");
    const node* n = root_.get();
    while (n->right) n = n->right.get();
    return n->key;
  }

  /// Inserts or replaces.
  void set(const K& key, V value) {
    if (!contains(key)) ++size_;
    root_ = with(root_, {key, std::make_shared<const V>(std::move(value))});
  }

  /// False: there was no such key.
  bool erase(const K& key) {
    if (!contains(key)) return false;
    root_ = without(root_, key);
    --size_;
    return true;
  }

  friend bool operator==(const persistent_map& a, const persistent_map& b) {
    if (a.root_ == b.root_) return true;
    if (a.size_ != b.size_) return false;
    return std::equal(a.begin(), a.end(), b.begin(), [](const auto& x, const auto& y) {
      return x.first == y.first && (&x.second == &y.second || x.second == y.second);
    });
  }

 private:
  static int height(const link& n) { return n ? n->height : 0; }
  /// The key and value of `of` above these subtrees.
  static link join(const node& of, const link& left, const link& right) {
    TROUPE_INVARIANT(std::abs(height(left) - height(right)) < 2, "a map's tree is balanced");
    const auto height_of_children = std::max(height(left), height(right));
    return std::make_shared<const node>(
        node{of.key, of.value, left, right, height_of_children + 1});
  }
  /// The same where the heights may differ by two, after one insertion or removal: rotates.
  static link balance(const node& of, const link& left, const link& right) {
    if (height(left) > height(right) + 1) {
      const auto& inner = left->right;
      if (height(left->left) >= height(inner))
        return join(*left, left->left, join(of, inner, right));
      return join(*inner, join(*left, left->left, inner->left), join(of, inner->right, right));
    }
    if (height(right) > height(left) + 1) {
      const auto& inner = right->left;
      if (height(right->right) >= height(inner))
        return join(*right, join(of, left, inner), right->right);
      return join(*inner, join(of, left, inner->left), join(*right, inner->right, right->right));
    }
    return join(of, left, right);
  }

  /// A subtree with this key and value, too.
  static link with(const link& n, const node& added) {
    if (!n) return join(added, nullptr, nullptr);
    if (added.key < n->key) return balance(*n, with(n->left, added), n->right);
    if (n->key < added.key) return balance(*n, n->left, with(n->right, added));
    return join(added, n->left, n->right);
  }
  /// The subtree without this key, which it has.
  static link without(const link& n, const K& key) {
    if (key < n->key) return balance(*n, without(n->left, key), n->right);
    if (n->key < key) return balance(*n, n->left, without(n->right, key));
    if (!n->left || !n->right) return n->left ? n->left : n->right;
    const node* next = n->right.get();
    while (next->left) next = next->left.get();
    return balance(*next, n->left, without(n->right, next->key));
  }

  link root_;
  std::size_t size_ = 0;
};

}  // namespace troupe::actors
