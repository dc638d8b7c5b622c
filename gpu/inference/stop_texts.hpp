#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::gpu {

/// Texts that end a completion, made ready to be searched for together (Aho and Corasick, 1975).
/// Immutable; copies share it, so that the choices of a request do.
class stop_texts {
 public:
  stop_texts() = default;
  /// None of them is empty.
  stop_texts(const std::vector<std::string>& all);
  stop_texts(std::initializer_list<std::string> all) : stop_texts{std::vector<std::string>{all}} {}

  const std::vector<std::string>& all() const;

 private:
  friend class stop_search;
  /// A text that begins a stop text, by its last letter.
  struct node {
    std::uint32_t first_child = 0, next_sibling = 0;  // 0: none
    std::uint32_t fallback = 0;  // of the longest end of this text that is a node, too
    std::uint32_t length = 0;
    std::uint32_t longest = 0;  // length of the longest stop text that ends here; 0: none does
    char letter = 0;
  };
  struct tables {
    std::vector<std::string> all;
    std::vector<node> nodes;  // by length; the first is the empty text
  };
  std::uint32_t child_of(std::uint32_t n, char letter) const;

  std::shared_ptr<const tables> tables_;  // null: there are none
};

/// A search through a text that comes in pieces: each byte is looked at once, and takes the same
/// time on average, however long the stop texts are and however they repeat themselves.
class stop_search {
 public:
  explicit stop_search(stop_texts texts) : texts_{std::move(texts)} {}

  /// Goes on with a piece. Returns the length of the whole text before the stop text that ends in
  /// this piece (of several, the one that begins first); nothing: none ends in it.
  std::optional<std::uint64_t> add(std::string_view piece);
  /// Bytes at the text's end that may begin a stop text.
  std::size_t open() const;
  /// Bytes so far.
  std::uint64_t size() const { return size_; }
  /// Texts that bytes were compared with.
  std::uint64_t steps() const { return steps_; }

 private:
  stop_texts texts_;
  std::uint32_t at_ = 0;
  std::uint64_t size_ = 0, steps_ = 0;
};

}  // namespace troupe::gpu
