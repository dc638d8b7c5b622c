#include "gpu/cpu/paged_attention.hpp"

#include <algorithm>
#include <cmath>

#include "gpu/cpu/kernels.hpp"
#include "gpu/cpu/matrix.hpp"
#include "gpu/inference/inference_device.hpp"

namespace troupe::gpu::cpu {

namespace {

constexpr std::size_t page_rows = tile_positions;

}  // namespace

paged_attention::paged_attention(const inference_model& m)
    : heads_{m.heads},
      shared_{m.heads / m.kv_heads},
      width_{m.head_width},
      queries_{m.query_width()},
      kv_{m.kv_width()},
      half_{page_rows * m.kv_width()},
      scale_{static_cast<float>(1 / std::sqrt(static_cast<double>(m.head_width)))},
      log_sums_(page_rows) {}

// Scratch grows geometrically with the longest sequence so far: lengths are not known in advance,
// and a page-wise growth would allocate in each tile.
float* paged_attention::scores(std::size_t n) {
  if (n > capacity_) {
    // First the memory, which may be missing: the next one to ask must not find a larger number.
    const auto more = std::max(n, 2 * capacity_);
    scores_ = memory_.take<float>(more);
    capacity_ = more;
  }
  return scores_.get();
}

/// A page has keys, then values; in each half the rows of one head lie together, so that a head is
/// a matrix without gaps.
void paged_attention::store(const float* qkv_row, std::uint32_t position, float* page) const {
  const float* key = qkv_row + queries_;
  const float* value = key + kv_;
  float* to = page + position % page_rows * width_;
  for (std::size_t at = 0; at < kv_; at += width_) {
    std::copy_n(key + at, width_, to + at * page_rows);
    std::copy_n(value + at, width_, to + half_ + at * page_rows);
  }
}

// Attention of one tile of queries over all its pages, head by head. Scores of all pages lie side
// by side in one matrix [page_rows, seen], so softmax runs over a complete row; the weighted values
// of the pages are then summed page by page. Only the last page needs the causal mask, which the
// softmax applies: query i sees the keys up to first + i. Groups of `shared_` query heads use the
// same head of keys and values (grouped-query attention).
void paged_attention::tile(const float* qkv, std::span<float* const> pages, float* out) {
  const auto& k = float_kernels();
  const auto seen = pages.size() * page_rows, first = seen - page_rows, stride = row_values();
  auto* all = scores(page_rows * seen);
  for (std::size_t h = 0; h < heads_; ++h) {
    const auto head = h / shared_ * page_rows * width_;
    const matrix query{qkv + h * width_, page_rows, width_, stride};
    const matrix to{out + h * width_, page_rows, width_, queries_};
    for (std::size_t p = 0; p < pages.size(); ++p)
      multiply(query, matrix<const float>{pages[p] + head, page_rows, width_}.transposed(),
               matrix{all + p * page_rows, page_rows, page_rows, seen});
    k.causal_softmax(all, page_rows, seen, first, scale_, log_sums_.data());
    for (std::size_t p = 0; p < pages.size(); ++p)
      multiply(matrix<const float>{all + p * page_rows, page_rows, page_rows, seen},
               matrix<const float>{pages[p] + half_ + head, page_rows, width_}, to,
               p == 0 ? into::set : into::add);
  }
}

// Attention of one decoded position. A matrix product of one row would be bound by its set-up, so
// dot products and weighted sums are used; only the last page is read partially, up to `position`.
void paged_attention::row(const float* qkv_row, std::uint32_t position,
                          std::span<float* const> pages, float* out) {
  const auto& k = float_kernels();
  const std::size_t seen = position + 1ull;
  auto* weights = scores(seen);
  const auto rows_of = [&](std::size_t p) { return std::min(page_rows, seen - p * page_rows); };
  std::fill_n(out, queries_, 0.0f);
  for (std::size_t h = 0; h < heads_; ++h) {
    const auto head = h / shared_ * page_rows * width_;
    for (std::size_t p = 0; p < pages.size(); ++p)
      k.dots(qkv_row + h * width_, pages[p] + head, rows_of(p), width_, weights + p * page_rows);
    k.causal_softmax(weights, 1, seen, position, scale_, log_sums_.data());
    for (std::size_t p = 0; p < pages.size(); ++p)
      k.add_weighted_rows(weights + p * page_rows, pages[p] + half_ + head, rows_of(p), width_,
                          out + h * width_);
  }
}

}  // namespace troupe::gpu::cpu
