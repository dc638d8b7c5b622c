#pragma once

#include <map>
#include <span>
#include <vector>

#include "gpu/cpu/pool.hpp"
#include "gpu/inference/inference_device.hpp"

namespace troupe::gpu::cpu {

/// Keys and values of sequences in pages of tile_positions positions. A page has for each attention
/// layer the keys, then the values, each [kv_heads, tile_positions, head_width].
class kv_cache {
 public:
  kv_cache(const inference_model& m, std::uint32_t pages, std::uint32_t layers);

  using sequence = std::vector<buffer<float>>;  // its pages in the order of positions

  /// false: too few free pages, and nothing has changed, as if memory is missing (std::bad_alloc).
  /// New pages are 0.
  bool reserve(sequence_id s, std::uint32_t positions);
  void release(sequence_id s);
  /// As those of inference_device. false: there is no such page; nothing has changed.
  bool keep(sequence_id s, std::uint32_t page, page_name name);
  bool share(sequence_id s, std::span<const page_name> names);
  void drop(page_name name);
  std::uint32_t free_pages() const { return pages_ - used_; }
  /// Null: it has no pages. Valid until it is released.
  const sequence* find(sequence_id s) const;

  /// Keys of one layer in a page, `layer` counted from this cache's first; the values follow.
  float* keys(const buffer<float>& page, std::uint32_t layer) const {
    return page.get() + layer * layer_values_;
  }
  /// Floats of one layer in a page, keys and values.
  std::size_t layer_values() const { return layer_values_; }

 private:
  void let_go(buffer<float>& page);

  std::uint32_t pages_, used_ = 0;  // used_: each page once, however many have it
  std::size_t layers_, layer_values_;
  pool memory_;
  std::map<sequence_id, sequence> sequences_;
  std::map<page_name, buffer<float>> named_;
};

}  // namespace troupe::gpu::cpu
