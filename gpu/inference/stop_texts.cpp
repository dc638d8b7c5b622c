#include "gpu/inference/stop_texts.hpp"

#include <algorithm>

namespace troupe::gpu {

// Texts are inserted letter by letter, all of a length before the longer ones: so a node's number
// is larger than those of all shorter texts, and the fallbacks that a node needs are there. A
// node's children are found one after the other, at most 256 of them.
stop_texts::stop_texts(const std::vector<std::string>& all) {
  if (all.empty()) return;
  auto made = std::make_shared<tables>();
  made->all = all;
  auto& nodes = made->nodes;
  nodes.emplace_back();
  tables_ = made;
  struct branch {
    std::string_view text;
    std::uint32_t node = 0;
  };
  std::vector<branch> left;
  for (const auto& text : all) left.push_back({text});
  std::ranges::sort(left, std::ranges::greater{}, [](const branch& b) { return b.text.size(); });
  for (std::size_t length = 1; !left.empty(); ++length) {
    for (auto& [text, at] : left) {
      const auto parent = at;
      const char letter = text[length - 1];
      at = child_of(parent, letter);
      if (at != 0) continue;
      at = static_cast<std::uint32_t>(nodes.size());
      auto shorter = nodes[parent].fallback;
      while (shorter != 0 && child_of(shorter, letter) == 0) shorter = nodes[shorter].fallback;
      const auto fallback = parent == 0 ? 0 : child_of(shorter, letter);
      nodes.push_back(
          {0, nodes[parent].first_child, fallback, static_cast<std::uint32_t>(length), 0, letter});
      nodes[parent].first_child = at;
    }
    for (; !left.empty() && left.back().text.size() == length; left.pop_back())
      nodes[left.back().node].longest = static_cast<std::uint32_t>(length);
  }
  // In the order of lengths: a fallback is shorter.
  for (auto& n : nodes)
    if (n.longest == 0) n.longest = nodes[n.fallback].longest;
}

const std::vector<std::string>& stop_texts::all() const {
  static const std::vector<std::string> none;
  return tables_ ? tables_->all : none;
}

std::uint32_t stop_texts::child_of(std::uint32_t n, char letter) const {
  const auto& nodes = tables_->nodes;
  auto child = nodes[n].first_child;
  while (child != 0 && nodes[child].letter != letter) child = nodes[child].next_sibling;
  return child;
}

std::optional<std::uint64_t> stop_search::add(std::string_view piece) {
  std::optional<std::uint64_t> first;
  if (!texts_.tables_) {
    size_ += piece.size();
    return first;
  }
  const auto& nodes = texts_.tables_->nodes;
  for (const char letter : piece) {
    ++size_;
    ++steps_;
    auto next = texts_.child_of(at_, letter);
    while (next == 0 && at_ != 0) {
      ++steps_;
      at_ = nodes[at_].fallback;
      next = texts_.child_of(at_, letter);
    }
    at_ = next;
    if (const auto n = nodes[at_].longest; n > 0)
      first = std::min(first.value_or(size_ - n), size_ - n);
  }
  return first;
}

std::size_t stop_search::open() const {
  return texts_.tables_ ? texts_.tables_->nodes[at_].length : 0;
}

}  // namespace troupe::gpu
