#include "gpu/cpu/attention.hpp"

#include <algorithm>
#include <cmath>

#include "gpu/cpu/kernels/kernels.hpp"
#include "gpu/cpu/kernels/matrix.hpp"

namespace troupe::gpu::cpu {

namespace {

// A compromise: products of larger tiles are faster, scores of smaller ones need less memory.
constexpr std::size_t queries_a_tile = 128;

}  // namespace

// Scratch of one tile serves all heads and rows one after another.
template <class T>
attention<T>::attention(std::size_t rows, std::size_t sequence, std::size_t hidden,
                        std::size_t heads, pool& memory)
    : rows_{rows},
      sequence_{sequence},
      hidden_{hidden},
      heads_{heads},
      width_{hidden / heads},
      tile_{std::min(queries_a_tile, sequence)},
      scale_{static_cast<T>(1 / std::sqrt(static_cast<double>(width_)))},
      scores_{memory.take<T>(tile_ * sequence)},
      gradients_{memory.take<T>(tile_ * sequence)},
      dots_{memory.take<T>(tile_)} {}

/// Tiles of queries bound the memory of the scores: a tile of t queries needs t rows, not a row for
/// each position. A tile computes no keys behind its last query, which the causal mask would drop.
template <class T>
void attention<T>::forward(const T* qkv, T* out, T* log_sums) {
  const auto& k = kernels_for<T>();
  const auto stride = 3 * hidden_;
  for (std::size_t r = 0; r < rows_; ++r)
    for (std::size_t h = 0; h < heads_; ++h) {
      const T* q = qkv + r * sequence_ * stride + h * width_;
      T* o = out + r * sequence_ * hidden_ + h * width_;
      T* sums = log_sums + (r * heads_ + h) * sequence_;
      for (std::size_t first = 0; first < sequence_; first += tile_) {
        const auto queries = std::min(tile_, sequence_ - first), seen = first + queries;
        const matrix<T> p{scores_.get(), queries, seen};
        const matrix keys{q + hidden_, seen, width_, stride};
        const matrix values{q + 2 * hidden_, seen, width_, stride};
        multiply(matrix{q + first * stride, queries, width_, stride}, keys.transposed(), p);
        k.causal_softmax(p.at, queries, seen, first, scale_, sums + first);
        multiply(p, values, matrix{o + first * hidden_, queries, width_, hidden_});
      }
    }
}

template <class T>
void attention<T>::backward(const T* gradient_out, const T* qkv, const T* out, const T* log_sums,
                            T* gradient_qkv) {
  for (std::size_t r = 0; r < rows_; ++r)
    for (std::size_t h = 0; h < heads_; ++h) {
      const auto token = r * sequence_, column = h * width_;
      const auto narrow = token * hidden_ + column, wide = token * 3 * hidden_ + column;
      backward_head(gradient_out + narrow, qkv + wide, out + narrow,
                    log_sums + (r * heads_ + h) * sequence_, gradient_qkv + wide);
    }
}

/// Probabilities are computed again from the stored logarithms of their sums, so that the forward
/// pass keeps one number per query and head instead of a row.
template <class T>
void attention<T>::backward_head(const T* gradient_out, const T* qkv, const T* out,
                                 const T* log_sums, T* gradient_qkv) {
  const auto& k = kernels_for<T>();
  const auto stride = 3 * hidden_;
  const auto tiles = (sequence_ + tile_ - 1) / tile_;
  for (auto tile = tiles;
       tile-- > 0;) {  // the last tile sees all keys, and initializes their gradients
    const auto first = tile * tile_, queries = std::min(tile_, sequence_ - first);
    const auto seen = first + queries;
    const auto sum = tile + 1 == tiles ? into::set : into::add;
    const matrix<T> p{scores_.get(), queries, seen}, g{gradients_.get(), queries, seen};
    const matrix query{qkv + first * stride, queries, width_, stride};
    const matrix keys{qkv + hidden_, seen, width_, stride};
    const matrix values{qkv + 2 * hidden_, seen, width_, stride};
    const matrix go{gradient_out + first * hidden_, queries, width_, hidden_};
    multiply(query, keys.transposed(), p);
    multiply(go, values.transposed(), g);
    k.row_dots(go.at, out + first * hidden_, queries, width_, hidden_, dots_.get());
    k.causal_softmax_backward(p.at, g.at, queries, seen, first, scale_, log_sums + first,
                              dots_.get());
    multiply(g, keys, matrix{gradient_qkv + first * stride, queries, width_, stride});
    multiply(g.transposed(), query, matrix{gradient_qkv + hidden_, seen, width_, stride}, sum);
    multiply(p.transposed(), go, matrix{gradient_qkv + 2 * hidden_, seen, width_, stride}, sum);
  }
}

template class attention<float>;
template class attention<double>;

}  // namespace troupe::gpu::cpu
