#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gpu/cpu/pool.hpp"
#include "gpu/cpu/thread_team.hpp"
#include "gpu/inference/inference_model.hpp"

namespace troupe::gpu::cpu {

/// Causal attention over keys and values in pages, within the model's window if it has one. The
/// order of every sum depends only on the position, whatever else is computed beside it; threads
/// take whole heads.
class paged_attention {
 public:
  paged_attention(const inference_model& m, std::size_t threads);

  /// Queries, keys and values of all heads side by side, one row a position.
  std::size_t row_values() const { return queries_ + 2 * kv_; }

  /// Copies a row's keys and values into a page, at a position's place in it.
  void store(const float* qkv_row, std::uint32_t position, float* page) const;

  /// tile_positions queries of one page's positions, whose keys and values are stored; `pages`: the
  /// layer's pages up to that one. out: [tile_positions, query width].
  void tile(const float* qkv, std::span<float* const> pages, float* out, thread_team& team);

  /// One position of a sequence, whose keys and values are stored.
  struct query {
    const float* qkv_row = nullptr;
    std::uint32_t position = 0;  // in the last of these pages
    std::vector<float*> pages;
    float* out = nullptr;  // query width
  };
  void rows(std::span<const query> all, thread_team& team);

 private:
  /// The first position that the query of this one attends to.
  std::size_t begin_of(std::size_t position) const {
    return window_ > 0 && position >= window_ ? position - window_ + 1 : 0;
  }
  void prepare_scores(std::size_t n);
  float* scores(std::size_t thread) const { return scores_.get() + thread * capacity_; }
  float* log_sums(std::size_t thread) { return &log_sums_[thread * log_sums_.size() / threads_]; }
  void tile_of_head(std::size_t head, const float* qkv, std::span<float* const> pages, float* out,
                    std::size_t thread);
  void row_of_head(std::size_t head, const query& q, std::size_t thread);

  std::size_t heads_, shared_, width_, queries_, kv_, half_;  // shared_: heads of one kv head
  std::size_t window_, threads_;                              // window_: 0: none
  std::size_t limit_;                                         // scores of a thread, at most
  float scale_;
  std::vector<float> log_sums_;
  buffer<float> scores_;
  std::size_t capacity_ = 0;  // of each thread's scores
  pool memory_;
};

}  // namespace troupe::gpu::cpu
