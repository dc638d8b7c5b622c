#include "gpu/cpu/kv_cache.hpp"

#include "messages/base/find_in.hpp"
#include "messages/base/invariant.hpp"

namespace troupe::gpu::cpu {

kv_cache::kv_cache(const inference_model& m, std::uint32_t pages, std::uint32_t layers)
    : pages_{pages}, layers_{layers}, layer_values_{page_bytes(m) / sizeof(float)} {}

/// All pages or none: a sequence that does not fit keeps the pages that it has.
// A page has its memory from its first position on, and is cleared then: values that are not
// computed must be finite, since a masked position is multiplied by 0.
bool kv_cache::reserve(sequence_id s, std::uint32_t positions) {
  const std::size_t wanted = pages_for(positions);
  const auto* known = find(s);
  const auto have = known ? known->size() : 0;
  if (wanted <= have) return true;
  if (wanted - have > free_pages()) return false;
  sequence fresh;
  while (have + fresh.size() < wanted)
    fresh.push_back(memory_.zeros<float>(layers_ * layer_values_));
  auto& pages = sequences_[s];
  pages.insert(pages.end(), fresh.begin(), fresh.end());
  used_ += static_cast<std::uint32_t>(fresh.size());
  TROUPE_INVARIANT(used_ <= pages_, "a cache uses no more pages than it may");
  return true;
}

void kv_cache::let_go(buffer<float>& page) {
  TROUPE_INVARIANT(page && used_ > 0, "a page that is let go was counted as used");
  if (page.use_count() == 1) --used_;
  page.reset();
}

// Releasing an unknown sequence is allowed: a request may end before its first page was reserved.
void kv_cache::release(sequence_id s) {
  const auto found = sequences_.find(s);
  if (found == sequences_.end()) return;
  for (auto& page : found->second) let_go(page);
  sequences_.erase(found);
}

bool kv_cache::keep(sequence_id s, std::uint32_t page, page_name name) {
  auto* pages = find_in(sequences_, s);
  if (!pages || page >= pages->size()) return false;
  auto& own = (*pages)[page];
  const auto [at, fresh] = named_.try_emplace(name, own);
  if (fresh || at->second == own) return true;
  let_go(own);
  own = at->second;
  return true;
}

bool kv_cache::share(sequence_id s, std::span<const page_name> names) {
  sequence pages;
  for (const auto name : names) {
    const auto* page = find_in(named_, name);
    if (!page) return false;
    pages.push_back(*page);
  }
  auto& all = sequences_[s];
  all.insert(all.end(), pages.begin(), pages.end());
  return true;
}

void kv_cache::drop(page_name name) {
  const auto found = named_.find(name);
  if (found == named_.end()) return;
  let_go(found->second);
  named_.erase(found);
}

const kv_cache::sequence* kv_cache::find(sequence_id s) const {
  return find_in(sequences_, s);
}

}  // namespace troupe::gpu::cpu
