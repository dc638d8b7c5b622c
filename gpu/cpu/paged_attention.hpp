#pragma once

#include <span>

#include "gpu/cpu/pool.hpp"
#include "gpu/inference/inference_model.hpp"

namespace troupe::gpu::cpu {

/// Causal attention over keys and values in pages. The order of every sum depends only on the
/// position, whatever else is computed beside it.
class paged_attention {
 public:
  explicit paged_attention(const inference_model& m);

  /// Queries, keys and values of all heads side by side, one row a position.
  std::size_t row_values() const { return queries_ + 2 * kv_; }

  /// Copies a row's keys and values into a page, at a position's place in it.
  void store(const float* qkv_row, std::uint32_t position, float* page) const;

  /// tile_positions queries of one page's positions, whose keys and values are stored; `pages`: the
  /// layer's pages up to that one. out: [tile_positions, query width].
  void tile(const float* qkv, std::span<float* const> pages, float* out);
  /// The query of one position, in the last of these pages. out: query width.
  void row(const float* qkv_row, std::uint32_t position, std::span<float* const> pages, float* out);

 private:
  float* scores(std::size_t n);

  std::size_t heads_, shared_, width_, queries_, kv_, half_;  // shared_: heads of one kv head
  float scale_;
  std::vector<float> log_sums_;
  buffer<float> scores_;
  std::size_t capacity_ = 0;
  pool memory_;
};

}  // namespace troupe::gpu::cpu
