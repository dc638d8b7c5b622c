#include "gpu/inference/prefix_index.hpp"

#include <algorithm>

#include "messages/base/invariant.hpp"
#include "messages/base/name_hash.hpp"

namespace troupe::gpu {

// Multiplied and folded word by word: FNV's bytes would take four times as long, and prompts have
// thousands of tokens.
std::uint64_t hash_of_prefix(const prefix_owner& owner, std::uint64_t before,
                             std::span<const std::uint32_t> tokens) {
  constexpr std::uint64_t factor = 0x9e3779b97f4a7c15ULL;
  auto hash = before ^ owner.model;
  const auto add = [&](std::uint64_t word) {
    hash = (hash ^ word) * factor;
    hash ^= hash >> 29;
  };
  if (!owner.adapter.empty()) add(hash_of_name(owner.adapter));
  add(tokens.size());
  for (const auto t : tokens) add(t);
  return hash;
}

std::uint64_t prefix_index::hash_behind(const prefix_owner& owner, page_name before,
                                        std::span<const std::uint32_t> tokens) const {
  return hash_(owner, before == 0 ? 0 : pages_.at(before).hash, tokens);
}

page_name prefix_index::find(const prefix_owner& owner, page_name before,
                             std::span<const std::uint32_t> tokens) const {
  const auto [begin, end] = by_hash_.equal_range(hash_behind(owner, before, tokens));
  for (auto at = begin; at != end; ++at) {
    const auto& p = pages_.at(at->second);
    if (p.before == before && p.owner == owner && std::ranges::equal(p.tokens, tokens))
      return at->second;
  }
  return 0;
}

page_name prefix_index::add(const prefix_owner& owner, page_name before,
                            std::span<const std::uint32_t> tokens) {
  const auto hash = hash_behind(owner, before, tokens);
  const auto name = ++names_;
  TROUPE_INVARIANT(before == 0 || pages_.contains(before), "a page follows one that is there");
  pages_[name] = {owner, before, {tokens.begin(), tokens.end()}, hash, 1, 0};
  by_hash_.emplace(hash, name);
  return name;
}

void prefix_index::hold(page_name p) {
  auto& page = pages_.at(p);
  if (page.holders++ > 0) return;
  const auto idle = idle_.erase({page.idle_since, p});
  TROUPE_INVARIANT(idle == 1, "a page that nobody holds is idle");
}

void prefix_index::let_go(page_name p) {
  auto& page = pages_.at(p);
  TROUPE_INVARIANT(page.holders > 0, "a page is let go by a sequence that holds it");
  if (--page.holders > 0) return;
  page.idle_since = ++times_;
  idle_.emplace(page.idle_since, p);
}

std::optional<page_name> prefix_index::evict() {
  if (idle_.empty()) return {};
  const auto name = idle_.begin()->second;
  idle_.erase(idle_.begin());
  TROUPE_INVARIANT(pages_.at(name).holders == 0, "a page that is dropped is nobody's");
  erase_hash(name);
  pages_.erase(name);
  return name;
}

void prefix_index::hide(page_name p) {
  if (pages_.contains(p)) erase_hash(p);
}

/// It may be hidden.
void prefix_index::erase_hash(page_name p) {
  const auto [begin, end] = by_hash_.equal_range(pages_.at(p).hash);
  const auto at = std::find_if(begin, end, [p](const auto& e) { return e.second == p; });
  if (at != end) by_hash_.erase(at);
}

}  // namespace troupe::gpu
