#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace troupe::gpu {

/// A page of a cache that sequences with the same prefix share; 0: none. Never used twice.
using page_name = std::uint64_t;

/// Keys and values are of a model, and of what changes it.
struct prefix_owner {
  std::uint64_t model = 0;  // hash of its files
  std::string adapter{};    // its name; empty: none

  auto operator<=>(const prefix_owner&) const = default;
};

/// Hash of a page's tokens and of all before them, whose hash is `before` (0: there are none).
std::uint64_t hash_of_prefix(const prefix_owner& owner, std::uint64_t before,
                             std::span<const std::uint32_t> tokens);

/// The pages of a cache that have been computed for a prompt and can begin another one: each by its
/// tokens and the page before it. The hash only finds candidates: a page keeps its owner, the page
/// before it and its tokens, and is another prefix's unless all of them are equal.
///
/// Whoever holds a page holds all pages before it, and lets go of the last one first. Of those that
/// nobody holds the least recently used is evicted first, and so none before one that follows it.
class prefix_index {
 public:
  using hasher = std::uint64_t (*)(const prefix_owner&, std::uint64_t before,
                                   std::span<const std::uint32_t> tokens);
  /// A test's hasher may be one that finds the same number for all.
  explicit prefix_index(hasher h = hash_of_prefix) : hash_{h} {}

  /// The page with these tokens behind `before`, a page of this index or 0; 0: it is not known.
  page_name find(const prefix_owner& owner, page_name before,
                 std::span<const std::uint32_t> tokens) const;
  /// A page that find() does not know, held once. `before` is held by the caller.
  page_name add(const prefix_owner& owner, page_name before, std::span<const std::uint32_t> tokens);
  void hold(page_name p);
  void let_go(page_name p);
  /// Forgets the page that was let go first; nothing: all are held.
  std::optional<page_name> evict();
  /// find() does not return it any more; whoever holds it lets it go as others. Names that are not
  /// known (any more) are ignored.
  void hide(page_name p);

  std::size_t size() const { return pages_.size(); }
  /// Pages that nobody holds.
  std::size_t idle() const { return idle_.size(); }

 private:
  struct entry {
    prefix_owner owner;
    page_name before = 0;
    std::vector<std::uint32_t> tokens;
    std::uint64_t hash = 0;
    std::uint32_t holders = 0;
    std::uint64_t idle_since = 0;
  };
  std::uint64_t hash_behind(const prefix_owner& owner, page_name before,
                            std::span<const std::uint32_t> tokens) const;
  void erase_hash(page_name p);

  hasher hash_;
  std::map<page_name, entry> pages_;
  std::multimap<std::uint64_t, page_name> by_hash_;
  std::set<std::pair<std::uint64_t, page_name>> idle_;  // by the time since when
  page_name names_ = 0;                                 // given so far
  std::uint64_t times_ = 0;
};

}  // namespace troupe::gpu
