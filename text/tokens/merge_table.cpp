#include "text/tokens/merge_table.hpp"

#include <cstddef>
#include <limits>
#include <queue>

namespace troupe::gpu {

namespace {

thread_local std::uint64_t operations = 0;

}  // namespace

std::uint64_t merge_table::queue_operations() {
  return operations;
}

/// Byte pair encoding: the adjacent pair with the lowest rank merges first, of equal ones the
/// leftmost, until no pair has a merge. Symbols are a linked list, and a queue has the possible
/// merges: n symbols take O(n log n) time, where a search for each merge would take O(n^2), so a
/// long word without spaces cannot stall the tokenizer. A merge leaves entries of its neighbours in
/// the queue; they are recognized by their tokens when they come up.
std::vector<std::uint32_t> merge_table::apply(const std::vector<std::uint32_t>& word) const {
  constexpr auto none = std::numeric_limits<std::size_t>::max();
  constexpr auto gone = std::numeric_limits<std::uint32_t>::max();
  struct symbol {
    std::uint32_t token = 0;
    std::size_t before = 0, after = 0;  // neighbours; `none` at the ends
  };
  // An entry whose tokens have changed since is passed over.
  struct possible {
    std::uint32_t rank = 0;
    std::size_t at = 0;
    std::uint32_t first = 0, second = 0, token = 0;
    bool operator<(const possible& other) const {  // the greatest comes first
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  if (word.empty()) return {};
  std::vector<symbol> symbols;
  symbols.reserve(word.size());
  for (const auto token : word) symbols.push_back({token, symbols.size() - 1, symbols.size() + 1});
  symbols.front().before = symbols.back().after = none;

  std::priority_queue<possible> queue;
  const auto consider = [&](std::size_t at) {
    if (at == none || symbols[at].after == none) return;
    const auto first = symbols[at].token, second = symbols[symbols[at].after].token;
    const auto found = merges_.find(pair_of(first, second));
    if (found == merges_.end()) return;
    queue.push({found->second.rank, at, first, second, found->second.token});
    ++operations;
  };
  for (std::size_t i = 0; i < symbols.size(); ++i) consider(i);
  while (!queue.empty()) {
    const auto best = queue.top();
    queue.pop();
    ++operations;
    auto& s = symbols[best.at];
    if (s.token != best.first || s.after == none || symbols[s.after].token != best.second) continue;
    auto& merged = symbols[s.after];
    s.token = best.token;
    merged.token = gone;
    s.after = merged.after;
    if (s.after != none) symbols[s.after].before = best.at;
    consider(s.before);
    consider(best.at);
  }
  std::vector<std::uint32_t> tokens;
  for (std::size_t i = 0; i != none; i = symbols[i].after) tokens.push_back(symbols[i].token);
  return tokens;
}

}  // namespace troupe::gpu
