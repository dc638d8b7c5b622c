#include "gpu/cpu/kv_cache.hpp"

#include "messages/base/find_in.hpp"

namespace troupe::gpu::cpu {

kv_cache::kv_cache(const inference_model& m, std::uint32_t pages, std::uint32_t layers)
    : pages_{pages}, layers_{layers}, layer_values_{page_bytes(m) / sizeof(float)} {}

/// All pages or none: a sequence that does not fit keeps the pages that it has.
bool kv_cache::reserve(sequence_id s, std::uint32_t positions) {
  const std::size_t wanted = pages_for(positions);
  const auto* known = find(s);
  const auto have = known ? known->size() : 0;
  if (wanted <= have) return true;
  if (wanted - have > free_pages()) return false;
  auto& pages = sequences_[s];
  while (pages.size() < wanted) {
    // Values that are not computed must be finite: a masked position is multiplied by 0.
    pages.push_back(memory_.zeros<float>(layers_ * layer_values_));
    ++used_;
  }
  return true;
}

// Releasing an unknown sequence is allowed: a request may end before its first page was reserved.
void kv_cache::release(sequence_id s) {
  const auto found = sequences_.find(s);
  if (found == sequences_.end()) return;
  used_ -= static_cast<std::uint32_t>(found->second.size());
  sequences_.erase(found);
}

const kv_cache::sequence* kv_cache::find(sequence_id s) const {
  return find_in(sequences_, s);
}

}  // namespace troupe::gpu::cpu
