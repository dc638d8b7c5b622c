#include "gpu/cpu/paged_attention.hpp"

#include <algorithm>
#include <cmath>

#include "gpu/cpu/kernels/kernels.hpp"
#include "gpu/cpu/kernels/matrix.hpp"
#include "gpu/inference/host_memory.hpp"
#include "gpu/inference/inference_device.hpp"

namespace troupe::gpu::cpu {

namespace {

constexpr std::size_t page_rows = tile_positions;

/// Products of a query and a key below which the heads are not shared among threads.
constexpr std::size_t worth_sharing = 16'000;

}  // namespace

paged_attention::paged_attention(const inference_model& m, std::size_t threads)
    : heads_{m.heads},
      shared_{m.heads / m.kv_heads},
      width_{m.head_width},
      queries_{m.query_width()},
      kv_{m.kv_width()},
      half_{page_rows * m.kv_width()},
      window_{m.window},
      threads_{threads},
      limit_{attention_bytes(m, pages_for(m.positions), 1) / sizeof(float)},
      scale_{static_cast<float>(1 / std::sqrt(static_cast<double>(m.head_width)))},
      log_sums_(threads * page_rows) {}

// Scratch grows geometrically with the longest sequence so far: lengths are not known in advance,
// and a page-wise growth would allocate in each tile; but to no more than the longest one needs,
// which is counted when the host's memory is shared out. It grows before the threads begin, which
// must not fail. First the memory, which may be missing: the next one to ask must not find a larger
// number.
void paged_attention::prepare_scores(std::size_t n) {
  if (n <= capacity_) return;
  const auto doubled = std::min(2 * capacity_, limit_);
  const auto more = (std::max(n, doubled) + page_rows - 1) / page_rows * page_rows;
  // The smaller one is of no use any more.
  capacity_ = 0;
  scores_ = {};
  memory_ = pool{};
  scores_ = memory_.take<float>(threads_ * more);
  capacity_ = more;
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

void paged_attention::tile(const float* qkv, std::span<float* const> pages, float* out,
                           thread_team& team) {
  const auto first = (pages.size() - 1) * page_rows;
  const auto seen = first + page_rows - begin_of(first) / page_rows * page_rows;
  prepare_scores(page_rows * seen);
  team.run_if(
      page_rows * seen * heads_ >= worth_sharing, heads_,
      [&](std::size_t head, std::size_t thread) { tile_of_head(head, qkv, pages, out, thread); });
}

// Attention of one tile of queries over all the pages that they see, in one head. Scores of all
// pages lie side by side in one matrix [page_rows, seen], so softmax runs over a complete row; the
// weighted values of the pages are then summed page by page. The softmax applies the causal mask,
// which only the last page needs, and the window, which ends in the first ones: query i sees the
// keys from begin_of(first + i) to first + i. Groups of `shared_` query heads use the same head of
// keys and values (grouped-query attention).
void paged_attention::tile_of_head(std::size_t h, const float* qkv, std::span<float* const> pages,
                                   float* out, std::size_t thread) {
  const auto& k = float_kernels();
  const auto first = (pages.size() - 1) * page_rows, unseen = begin_of(first) / page_rows;
  const auto begin = unseen * page_rows, seen = first + page_rows - begin;
  const auto own = pages.subspan(unseen);
  const auto head = h / shared_ * page_rows * width_;
  auto* all = scores(thread);
  const matrix queries{qkv + h * width_, page_rows, width_, row_values()};
  const matrix to{out + h * width_, page_rows, width_, queries_};
  for (std::size_t p = 0; p < own.size(); ++p)
    multiply(queries, matrix<const float>{own[p] + head, page_rows, width_}.transposed(),
             matrix{all + p * page_rows, page_rows, page_rows, seen});
  if (window_ == 0) k.causal_softmax(all, page_rows, seen, first, scale_, log_sums(thread));
  for (std::size_t i = 0; window_ > 0 && i < page_rows; ++i) {
    const auto hidden = begin_of(first + i) - begin;
    std::fill_n(all + i * seen, hidden, 0.0f);
    k.causal_softmax(all + i * seen + hidden, 1, seen - hidden, first + i - begin - hidden, scale_,
                     log_sums(thread));
  }
  for (std::size_t p = 0; p < own.size(); ++p)
    multiply(matrix<const float>{all + p * page_rows, page_rows, page_rows, seen},
             matrix<const float>{own[p] + half_ + head, page_rows, width_}, to,
             p == 0 ? into::set : into::add);
}

void paged_attention::rows(std::span<const query> all, thread_team& team) {
  std::size_t longest = 0, terms = 0;
  for (const auto& q : all) {
    longest = std::max<std::size_t>(longest, q.position + 1ull - begin_of(q.position));
    terms += (q.position + 1ull) * queries_;
  }
  prepare_scores(longest);
  team.run_if(terms >= worth_sharing, all.size() * heads_,
              [&](std::size_t block, std::size_t thread) {
                row_of_head(block % heads_, all[block / heads_], thread);
              });
}

// Attention of one decoded position. A matrix product of one row would be bound by its set-up, so
// dot products and weighted sums are used; of the first page only the part within the window is
// read, of the last one that up to the position.
void paged_attention::row_of_head(std::size_t h, const query& q, std::size_t thread) {
  const auto& k = float_kernels();
  const std::size_t begin = begin_of(q.position), end = q.position + 1ull;
  auto* weights = scores(thread);
  auto* out = q.out + h * width_;
  const auto head = h / shared_ * page_rows * width_;
  // f(rows of a page in the window, their number, their weights)
  const auto for_pages = [&](std::size_t offset, auto&& f) {
    for (auto at = begin; at < end;) {
      const auto n = std::min(page_rows - at % page_rows, end - at);
      f(q.pages[at / page_rows] + offset + at % page_rows * width_, n, weights + (at - begin));
      at += n;
    }
  };
  for_pages(head, [&](const float* keys, std::size_t n, float* to) {
    k.dots(q.qkv_row + h * width_, keys, n, width_, to);
  });
  k.causal_softmax(weights, 1, end - begin, end - begin - 1, scale_, log_sums(thread));
  std::fill_n(out, width_, 0.0f);
  for_pages(half_ + head, [&](const float* values, std::size_t n, const float* by) {
    k.add_weighted_rows(by, values, n, width_, out);
  });
}

}  // namespace troupe::gpu::cpu
