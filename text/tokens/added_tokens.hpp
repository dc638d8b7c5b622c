#pragma once

#include <bitset>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/base/text_range.hpp"

namespace troupe::gpu {

/// A token besides the byte pair encoding's, found in a text by its name.
struct added_token {
  std::string content;
  std::uint32_t number = 0;
  bool special = false;
  bool strips_left = false, strips_right = false;  // takes the white space beside it
  bool single_word = false;                        // only where no other character of words is
  bool normalized = false;                         // found in the text as normalized
};

/// Finds added tokens in texts: from left to right, of several at one place the longest.
class token_finder {
 public:
  /// The first of equal names counts. The token lives as long as this.
  void add(std::string_view name, const added_token& token);
  bool empty() const { return steps_.empty(); }
  /// Are there special tokens?
  bool has_special() const { return has_special_; }

  /// A part of a text with its token; without one: what is between them. `begin`: its first byte.
  struct part {
    std::string_view text;
    std::size_t begin = 0;
    const added_token* token = nullptr;
  };
  /// The parts of a text in their order. Special tokens that overlap `literal` are not found.
  void split(std::string_view text, std::span<const text_range> literal,
             const std::function<void(const part&)>& use) const;

 private:
  struct found {
    std::size_t end = 0;
    const added_token* token = nullptr;
  };
  found longest_at(std::string_view text, std::size_t at) const;

  // A tree of names, by the number of a node and the next byte; 0 is the root.
  std::unordered_map<std::uint64_t, std::uint32_t> steps_;
  std::vector<const added_token*> ends_{nullptr};  // the token whose name ends at a node
  std::bitset<256> begin_;                         // the first bytes of names
  bool has_special_ = false;
};

}  // namespace troupe::gpu
